#include "model/infer/generate/choose.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/threads/team.h"

namespace lumen::model::infer {
namespace {

class Choosing {
 public:
  explicit Choosing(std::span<const Choice> choices)
      : choices_(choices), is_done_(choices.size(), 0), is_open_(choices.size(), 0), distant_(choices.size()) {}

  void run() {
    each([&](size_t i) { is_done_[i] = choices_[i].answer->choose(*choices_[i].row) ? 1 : 0; });
    if (is_all_done()) return;
    choose_from_masked();
    for (;;) {
      each([&](size_t i) {
        if (is_open_[i] == 0) return;
        try {
          is_done_[i] = choices_[i].answer->choose(*distant_[i]) ? 1 : 0;
        } catch (const Undecided&) {
          is_open_[i] = 0;
        }
      });
      if (!answer_needs()) break;
    }
    if (is_all_done()) return;
    each_here([&](size_t i) { (void)choices_[i].row->whole(); });
    each([&](size_t i) { is_done_[i] = choices_[i].answer->choose(*choices_[i].row) ? 1 : 0; });
  }

 private:
  bool is_all_done() const {
    return std::ranges::all_of(is_done_, [](uint8_t done) { return done != 0; });
  }
  // Calls `see` with each choice that is not done; those that fail are.
  void each_here(const std::function<void(size_t)>& see) {
    for (size_t i = 0; i < choices_.size(); ++i) try_one(i, see);
  }
  void each(const std::function<void(size_t)>& see) {
    parallel_for(0, std::ssize(choices_), {.grain = 1, .is_worth = choices_.size() > 1},
                 [&](int64_t i) { try_one(size_t(i), see); });
  }
  void try_one(size_t i, const std::function<void(size_t)>& see) {
    if (is_done_[i] != 0) return;
    try {
      see(i);
    } catch (const Error&) {
      is_done_[i] = 1;
    }
  }

  // The rows that a grammar restricts are reduced to their allowed tokens. What they and the others leave open is
  // looked at as long as the sampler needs.
  void choose_from_masked() {
    std::vector<std::optional<TokenSet>> allowed(choices_.size());
    each([&](size_t i) {
      if (!choices_[i].row->source()) return;
      is_open_[i] = 1;
      allowed[i] = choices_[i].answer->allowed();
    });
    std::vector<std::optional<Narrowed>> masked(choices_.size());
    std::map<RowSource*, std::vector<size_t>> by_source;
    for (size_t i = 0; i < choices_.size(); ++i)
      if (allowed[i] && is_done_[i] == 0) by_source[choices_[i].row->source()].push_back(i);
    for (const auto& [source, numbers] : by_source) {
      std::vector<RowSource::Look> looks;
      for (const size_t i : numbers)
        looks.push_back({choices_[i].row->number(), &*allowed[i], choices_[i].answer->asked(*choices_[i].row)});
      std::vector<std::optional<Narrowed>> seen = source->look(looks);
      for (size_t n = 0; n < numbers.size(); ++n) masked[numbers[n]] = std::move(seen[n]);
    }
    each([&](size_t i) {
      if (is_open_[i] == 0) return;
      if (allowed[i] && !masked[i]) {
        is_open_[i] = 0;
      } else if (masked[i]) {
        const LogitRow reduced(*masked[i], nullptr);
        is_done_[i] = choices_[i].answer->choose(reduced) ? 1 : 0;
      }
      if (is_open_[i] != 0 && is_done_[i] == 0)
        distant_[i].emplace(masked[i] ? *masked[i] : *choices_[i].row->narrowed());
    });
  }

  // False if there are none.
  bool answer_needs() {
    std::map<RowSource*, std::vector<size_t>> looks, counts;
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (is_done_[i] != 0 || is_open_[i] == 0) continue;
      const bool counted = distant_[i]->need().kind == DistantRow::Need::Kind::tallies;
      (counted ? counts : looks)[choices_[i].row->source()].push_back(i);
    }
    const auto learn = [&](size_t i, auto&& answer) {
      try {
        distant_[i]->learn(answer);
      } catch (const Undecided&) {
        is_open_[i] = 0;
      }
    };
    for (const auto& [source, numbers] : counts) {
      std::vector<RowSource::Count> wanted;
      for (const size_t i : numbers) {
        const DistantRow::Need& w = distant_[i]->need();
        wanted.push_back({choices_[i].row->number(), &w.allowed, w.temperature, w.best, w.center, w.edges});
      }
      const std::vector<Tallies> tallies = source->count(wanted);
      for (size_t n = 0; n < numbers.size(); ++n) learn(numbers[n], tallies[n]);
    }
    for (const auto& [source, numbers] : looks) {
      std::vector<RowSource::Look> wanted;
      for (const size_t i : numbers) {
        const DistantRow::Need& w = distant_[i]->need();
        wanted.push_back({choices_[i].row->number(), &w.allowed, w.asked, w.range});
      }
      const std::vector<std::optional<Narrowed>> seen = source->look(wanted);
      for (size_t n = 0; n < numbers.size(); ++n) learn(numbers[n], seen[n]);
    }
    return !looks.empty() || !counts.empty();
  }

  std::span<const Choice> choices_;
  std::vector<uint8_t> is_done_;
  std::vector<uint8_t> is_open_;  // whether further looks may decide it
  std::vector<std::optional<DistantRow>> distant_;
};

}  // namespace

void choose_tokens(std::span<const Choice> choices) {
  Choosing(choices).run();
}

}  // namespace lumen::model::infer
