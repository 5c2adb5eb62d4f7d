#include <algorithm>

#include "apps/recommend/recommend.h"
#include "base/check.h"
#include "base/round_up.h"

namespace lumen::recommend {
namespace {

constexpr int64_t kRowsAtOnce = 256;       // limit of row counts with compiled programs
constexpr uint64_t kOrder = 0x6f72646572;  // draws of an epoch's order

std::vector<ItemId> sorted(std::vector<ItemId> items) {
  std::sort(items.begin(), items.end());
  return items;
}

// Items of a training sequence, its targets, and the targets' weights.
struct Rows {
  std::span<int32_t> items, targets, negatives, recent;
  std::span<float> counts;
};

// Targets are the next items; right-aligned.
void fill_sequence(std::span<const ItemId> own, const ExampleForm& form, Draws& draws, const Rows& to) {
  const int64_t n = std::min(std::ssize(own) - 1, form.length);
  if (n < 1) return;
  const auto inputs = own.subspan(own.size() - 1 - n, n), targets = own.subspan(own.size() - n, n);
  put_last(inputs, to.items);
  put_last(targets, to.targets);
  // Items that the plan has seen are no targets: at least the first `cut` of n inputs.
  int64_t cut = 1;
  if (form.recent > 0) {
    cut = 1 + draws.below(n);
    put_last(inputs.first(cut), to.recent);
  }
  for (int64_t i = cut - 1; i < n; ++i) to.counts[form.length - n + i] = 1;
}

// The items before `end`, and as targets the items from there on.
void fill_window(std::span<const ItemId> own, int64_t end, const ExampleForm& form, const Rows& to) {
  put_last(own.first(end), to.items);
  if (form.recent > 0) put_last(own.first(end), to.recent);
  for (int64_t i = 0; i < form.targets && end + i < std::ssize(own); ++i) {
    to.targets[i] = own[end + i];
    to.counts[i] = 1;
  }
}

// Targets with a weight, as rows of all states, and candidates to compare them with.
void put_candidates(ExampleBatch& batch, const ExampleForm& form, int64_t width, int64_t items, Draws& draws) {
  const std::vector<float>& counts = batch.numbers.at("counts");
  const std::vector<int32_t>& targets = batch.integers.at("targets");
  std::vector<int32_t>&rows = batch.integers["rows"], &answers = batch.integers["answers"];
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    rows.push_back(form.targets > 0 ? i / width : i);
    answers.push_back(targets[i]);
  }
  std::vector<float> weights(rows.size(), 1.0F);
  const size_t padded = round_up(rows.size(), kRowsAtOnce);
  rows.resize(padded);
  answers.resize(padded);
  weights.resize(padded);
  batch.numbers["counts"] = std::move(weights);
  std::vector<int32_t>& candidates = batch.integers["candidates"];
  const bool is_all = form.candidates == 0 || form.candidates >= items;
  candidates.resize(is_all ? items : form.candidates);
  for (int64_t i = 0; i < std::ssize(candidates); ++i) candidates[i] = 1 + (is_all ? i : draws.below(items));
  batch.integers.erase("targets");
  batch.integers.erase("negatives");
  batch.symbols["N"] = padded;
  batch.symbols["M"] = std::ssize(candidates);
}

}  // namespace

void put_last(std::span<const ItemId> items, std::span<int32_t> to) {
  const size_t n = std::min(items.size(), to.size());
  std::fill(to.begin(), to.end() - n, 0);
  std::copy(items.end() - n, items.end(), to.end() - n);
}

std::vector<UserWindow> epoch_examples(const Split& split, const ExampleForm& form, uint64_t seed, int64_t epoch) {
  std::vector<UserWindow> out;
  for (int64_t user = 0; user < std::ssize(split.all.users); ++user) {
    const int64_t length = std::ssize(split.training(user));
    if (form.targets == 0) {
      if (length >= 2) out.push_back({user, length});
      continue;
    }
    // Windows slide by one; the first target of the first window follows a full window if there is one.
    for (int64_t end = std::min(form.length, std::max<int64_t>(1, length - form.targets)); end < length; ++end) {
      out.push_back({user, end});
      if (end + form.targets >= length) break;
    }
  }
  Draws draws(seed, kOrder, epoch);
  for (int64_t i = std::ssize(out) - 1; i > 0; --i) std::swap(out[i], out[draws.below(i + 1)]);
  return out;
}

UserWindow last_window(const Split& split, const ExampleForm& form, int64_t user) {
  const int64_t length = std::ssize(split.training(user));
  return {user, form.targets > 0 ? std::max<int64_t>(1, length - form.targets) : length};
}

ExampleBatch training_batch(const Split& split, const ExampleForm& form, std::span<const UserWindow> examples,
                            Draws draws) {
  ExampleBatch batch;
  const int64_t rows = std::ssize(examples), width = form.targets > 0 ? form.targets : form.length;
  std::vector<int32_t>&items = batch.integers["items"], &targets = batch.integers["targets"];
  std::vector<int32_t>&negatives = batch.integers["negatives"], &recent = batch.integers["recent"];
  std::vector<float>& counts = batch.numbers["counts"];
  items.resize(rows * form.length);
  recent.resize(rows * form.recent);
  for (auto* each : {&targets, &negatives}) each->resize(rows * width);
  counts.resize(rows * width);
  for (int64_t r = 0; r < rows; ++r) {
    const Rows to{std::span(items).subspan(r * form.length, form.length), std::span(targets).subspan(r * width, width),
                  std::span(negatives).subspan(r * width, width),
                  std::span(recent).subspan(r * form.recent, form.recent), std::span(counts).subspan(r * width, width)};
    const std::vector<ItemId> own = split.training(examples[r].user);
    if (form.targets > 0)
      fill_window(own, examples[r].end, form, to);
    else
      fill_sequence(own, form, draws, to);
    if (form.by_candidates) continue;
    const std::vector<ItemId> history = sorted(own);
    for (int64_t i = 0; i < width; ++i)
      if (to.counts[i] != 0) to.negatives[i] = draw_other(draws, history, split.all.items());
  }
  if (form.recent == 0) batch.integers.erase("recent");
  batch.symbols = {{"B", rows}, {"T", form.length}};
  if (form.targets > 0) batch.symbols["J"] = form.targets;
  if (form.by_candidates) put_candidates(batch, form, width, split.all.items(), draws);
  return batch;
}

}  // namespace lumen::recommend
