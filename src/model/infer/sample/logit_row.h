// The logits behind one token as a sampler gets them: a whole row of the vocabulary, or what a device has narrowed it
// to (session/narrowing.h), with the row still there for who cannot decide by that. Proved by
// tests/model/infer/narrowing_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

struct Candidate {
  TokenId id;
  double logit;
};

// Ties go to the lower id, so that the order is the same everywhere.
inline bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// What a sampler needs from a row in addition to its largest logits.
struct Asked {
  std::vector<TokenId> ids = {};  // whose logits; none twice
  double temperature = 1;         // of the sum of weights
  uint32_t seed = 0;              // the race of the draw from this row is Race(seed, number)
  uint64_t number = 0;
};

// Thrown where a narrowed row does not say what the whole one would.
struct Undecided {};

// A row of numbers, none of them infinite.
struct Narrowed {
  // In the sum of weights, relative: it is summed in f32, some thousand numbers one after the other at most.
  static constexpr double kSumError = 1e-3;

  int64_t vocabulary = 0;
  std::vector<Candidate> best;  // the largest, in order; every token that is not here is worse than the last
  std::unordered_map<TokenId, double> asked;
  double temperature = 1;
  double sum = 0;  // of exp((logit - best[0].logit) / temperature) over the vocabulary, within kSumError

  // A race of groups at that temperature, with the weights of all tokens: the logits of the groups in front. Every
  // other group's ratio is less than (1 + kSumError) times that of the last of them.
  struct Group {
    int64_t number = 0;
    std::vector<float> logits = {};  // of tokens number * Race::kGroup and on
  };
  std::vector<Group> front = {};
  uint32_t race_key = 0;
  bool has_others = false;  // groups that are not in front

  double at(TokenId id) const;  // a logit of 0 <= id < vocabulary; Undecided when it is not known
};

class LogitRow {
 public:
  using Fetch = std::function<std::span<const float>()>;
  LogitRow() = default;
  LogitRow(std::span<const float> whole) : whole_(whole) {}  // NOLINT(google-explicit-constructor): a row is a row
  explicit LogitRow(std::vector<float> own)
      : owned_(std::make_shared<const std::vector<float>>(std::move(own))), whole_(*owned_) {}
  // A row out of several.
  LogitRow(std::shared_ptr<const std::vector<float>> rows, size_t first, size_t count)
      : owned_(std::move(rows)), whole_(std::span(*owned_).subspan(first, count)) {}
  // `fetch` is called at most once, and may be called until the next step.
  LogitRow(Narrowed narrowed, Fetch fetch)
      : narrowed_(std::make_shared<const Narrowed>(std::move(narrowed))), fetch_(std::move(fetch)) {}

  const Narrowed* narrowed() const { return narrowed_.get(); }  // null: there is only the whole row
  bool is_whole() const { return !whole_.empty(); }             // it need not be fetched
  std::span<const float> whole() const;

 private:
  std::shared_ptr<const std::vector<float>> owned_;
  std::shared_ptr<const Narrowed> narrowed_;
  Fetch fetch_;
  mutable std::span<const float> whole_;
};

}  // namespace lumen::model
