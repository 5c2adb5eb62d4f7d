#include "model/data/examples/plan.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "model/data/examples/order.h"

namespace lumen::model::data {
namespace {

constexpr size_t kOpenWindows = 256;
constexpr uint64_t kPackingEpoch = UINT64_MAX;  // an order of its own, beside those of epochs

uint32_t learned_in(const ExampleStore& store, const StoredExample& e, uint64_t first, uint64_t length) {
  if (first == 0 && length == e.length) return e.learned;
  const auto tokens = store.tokens(e).subspan(first, length);
  uint32_t count = 0;
  for (size_t i = 1; i < tokens.size(); ++i) count += tokens[i] >= ExampleStore::kLearned;
  return count;
}

class Planner {
 public:
  Planner(const ExampleStore& store, const PlanOptions& options, const std::vector<std::string>& files,
          RowReport* report)
      : store_(store), options_(options), files_(files), report_(report), longest_(options.length + 1) {}

  RowPlan run(const std::vector<uint32_t>& chosen) {
    const Permutation order(std::max<uint64_t>(chosen.size(), 1), options_.seed, kPackingEpoch);
    const bool pairs = store_.form() == RowForm::pairs;
    for (uint64_t i = 0; i < chosen.size(); ++i) {
      const uint32_t one = chosen[options_.packing && !pairs ? order.at(i) : i];
      if (pairs)
        pair(one);
      else
        single(one);
    }
    while (!open_.empty()) close(open_.begin());
    out_.begins.push_back(out_.items.size());
    return std::move(out_);
  }

 private:
  using Open = std::multimap<int64_t, std::vector<PlanItem>>;  // by the positions that are left

  RowReport::Place place(const StoredExample& e) const {
    return {e.file < files_.size() ? files_[e.file] : "", e.line, fmt::format("{} tokens", e.length)};
  }

  // The part of an example that a row holds; nothing to learn in it: length 0.
  PlanItem fitted(uint32_t index) const {
    const StoredExample& e = store_.examples()[index];
    const uint32_t length = std::min<int64_t>(e.length, longest_);
    const uint32_t learned = learned_in(store_, e, 0, length);
    return {index, 0, learned == 0 ? 0 : length, learned};
  }

  bool refuse(const StoredExample& e, bool nothing_left) {
    if (e.length <= longest_) return false;
    const std::string window = fmt::format("more than {} tokens", longest_);
    if (options_.overflow == Overflow::drop)
      report_->drop(window, place(e));
    else if (nothing_left)
      report_->drop(window + ", and no answer within them", place(e));
    else
      report_->cut(window, place(e));
    return options_.overflow == Overflow::drop || nothing_left;
  }

  void single(uint32_t index) {
    const StoredExample& e = store_.examples()[index];
    if ((e.flags & StoredExample::kText) != 0) {
      for (uint32_t first = 0; first + 1 < e.length; first += options_.length) {
        const uint32_t length = std::min<int64_t>(e.length - first, longest_);
        put({index, first, length, learned_in(store_, e, first, length)});
      }
      return;
    }
    const PlanItem item = fitted(index);
    if (!refuse(e, item.length == 0)) put(item);
  }

  void pair(uint32_t index) {
    const PlanItem chosen = fitted(2 * index), rejected = fitted(2 * index + 1);
    const StoredExample &a = store_.examples()[2 * index], &b = store_.examples()[2 * index + 1];
    if (refuse(a.length >= b.length ? a : b, chosen.length == 0 || rejected.length == 0)) return;
    row({chosen});
    row({rejected});
  }

  void put(const PlanItem& item) {
    const int64_t size = item.length - 1;
    if (!options_.packing || store_.form() != RowForm::sequences) return row({item});
    const auto best = open_.lower_bound(size);
    std::vector<PlanItem> items;
    int64_t left = options_.length;
    if (best != open_.end()) {
      left = best->first;
      items = std::move(best->second);
      open_.erase(best);
    } else if (open_.size() == kOpenWindows) {
      close(open_.begin());  // the fullest one
    }
    items.push_back(item);
    left -= size;
    if (left == 0)
      row(items);
    else
      open_.emplace(left, std::move(items));
  }

  void close(Open::iterator window) {
    row(window->second);
    open_.erase(window);
  }

  void row(const std::vector<PlanItem>& items) {
    out_.begins.push_back(out_.items.size());
    out_.items.insert(out_.items.end(), items.begin(), items.end());
  }

  const ExampleStore& store_;
  const PlanOptions& options_;
  const std::vector<std::string>& files_;
  RowReport* report_;
  int64_t longest_;
  RowPlan out_;
  Open open_;
};

}  // namespace

const char* overflow_name(Overflow o) {
  return o == Overflow::cut ? "cut" : "drop";
}

Overflow overflow(const std::string& name) {
  for (const Overflow o : {Overflow::cut, Overflow::drop})
    if (name == overflow_name(o)) return o;
  throw Error(Exit::usage, fmt::format("overflow: '{}' is unknown", name), "cut or drop");
}

RowPlan plan_rows(const ExampleStore& store, const std::vector<uint32_t>& chosen, const PlanOptions& options,
                  const std::vector<std::string>& files, RowReport* report) {
  LUMEN_CHECK(options.length >= 1);
  return Planner(store, options, files, report).run(chosen);
}

}  // namespace lumen::model::data
