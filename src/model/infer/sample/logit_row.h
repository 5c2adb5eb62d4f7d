// The logits of one token for a sampler: a full row of the vocabulary, or its reduction on the device
// (narrowing/narrowing.h); the full row can still be fetched if the reduction does not suffice. Proved by
// tests/model/infer/narrowing_test.cpp.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/token_set.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::infer {

struct Candidate {
  text::TokenId id;
  double logit;
};

// Ties go to the lower id, so that the order is the same on every machine.
inline bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The values that a sampler needs in addition to the largest logits.
struct Asked {
  std::vector<text::TokenId> ids = {};  // tokens whose logits are needed; no duplicates
  double temperature = 1;               // for the softmax denominator
  uint32_t seed = 0;                    // Race(seed, number) is the race of the draw from this row
  uint64_t number = 0;
};

// An edge with this id stands behind all tokens with its logit.
constexpr auto kEveryId = std::numeric_limits<text::TokenId>::max();

// The tokens that are not worse than an edge, which need not be a token, and whose logit is at most `high`.
struct TokenRange {
  Candidate edge = {kEveryId, -std::numeric_limits<double>::infinity()};
  float high = std::numeric_limits<float>::infinity();
  bool has(const Candidate& c) const { return !is_better(edge, c) && c.logit <= high; }
};

// Sums over tokens of a row, with the weights exp((logit - best) / temperature): the number of tokens is exact, sums in
// f32 are within kError of the sum of their magnitudes.
struct Tally {
  static constexpr double kError = 4e-5;
  double count = 0, weight = 0;
  double moment = 0;  // of weight * (logit - center)
};
struct Tallies {
  std::vector<Tally> of_edges;  // of the tokens that are not worse than each edge
  Tally all;
  double magnitude = 0;         // of weight * |logit - center|
  double sum = 0, squares = 0;  // of logit - center, and of its square
};

// Thrown if a reduced row does not determine the result of the full row.
struct Undecided {};

// A reduced row; all of its logits are finite.
struct Narrowed {
  // Relative error of `sum`: it is accumulated in f32, over chains of at most some thousand additions.
  static constexpr double kSumError = 1e-3;

  int64_t vocabulary = 0;
  std::vector<Candidate> best;  // the largest logits, in order; all other tokens are worse than the last one
  std::unordered_map<text::TokenId, double> asked;
  double temperature = 1;
  double sum = 0;  // of exp((logit - best[0].logit) / temperature) over the vocabulary, within kSumError
  // Everything is of the tokens that a filter allows and that are not barred; others have very low logits.
  bool is_masked = false;
  bool is_complete = false;  // `best` has all of them

  // A race of groups at that temperature, with the weights of all tokens: the logits of the leading groups. The ratio
  // of every other group is less than (1 + kSumError) times that of the last leading one.
  struct Group {
    int64_t number = 0;
    std::vector<float> logits = {};  // of tokens number * Race::kGroup and following
  };
  std::vector<Group> front = {};
  uint32_t race_key = 0;
  bool has_others = false;  // whether there are groups outside of `front`

  double at(text::TokenId id) const;  // logit of 0 <= id < vocabulary; throws Undecided if it is not known
};

// The rows of a step, which are valid until the next one. Their logits stay where they are.
class RowSource {
 public:
  RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;
  virtual ~RowSource() = default;
  virtual std::span<const float> whole(int64_t row) = 0;
  // Reduces rows again, each to its allowed tokens in a range. nullopt where only the full row decides.
  struct Look {
    int64_t row;
    const TokenSet* allowed;
    Asked asked;
    TokenRange range = {};
  };
  virtual std::vector<std::optional<Narrowed>> look(std::span<const Look> rows) = 0;
  // Adds up the allowed tokens of rows; `best` is the largest of their logits. At most kMostEdges edges, whose logits
  // are f32 numbers.
  struct Count {
    int64_t row;
    const TokenSet* allowed;
    double temperature;
    float best, center;
    std::span<const Candidate> edges;
  };
  static constexpr int64_t kMostEdges = 64;
  virtual std::vector<Tallies> count(std::span<const Count> rows) = 0;
};

class LogitRow {
 public:
  using Fetch = std::function<std::span<const float>()>;
  LogitRow() = default;
  LogitRow(std::span<const float> whole) : whole_(whole) {}  // NOLINT(google-explicit-constructor): wraps a full row
  explicit LogitRow(std::vector<float> own)
      : owned_(std::make_shared<const std::vector<float>>(std::move(own))), whole_(*owned_) {}
  // One row of several.
  LogitRow(std::shared_ptr<const std::vector<float>> rows, size_t first, size_t count)
      : owned_(std::move(rows)), whole_(std::span(*owned_).subspan(first, count)) {}
  // `fetch` returns the full row. It is called at most once, before the next step.
  LogitRow(Narrowed narrowed, Fetch fetch)
      : narrowed_(std::make_shared<const Narrowed>(std::move(narrowed))), fetch_(std::move(fetch)) {}
  // Row `number` of a source.
  LogitRow(Narrowed narrowed, std::shared_ptr<RowSource> source, int64_t number)
      : LogitRow(std::move(narrowed), [source, number] { return source->whole(number); }) {
    source_ = std::move(source);
    number_ = number;
  }

  const Narrowed* narrowed() const { return narrowed_.get(); }  // null: only the full row is available
  bool is_whole() const { return !whole_.empty(); }             // no fetch is needed
  std::span<const float> whole() const;
  RowSource* source() const { return source_.get(); }  // null: it can only be fetched
  int64_t number() const { return number_; }           // of the source's rows

 private:
  std::shared_ptr<const std::vector<float>> owned_;
  std::shared_ptr<const Narrowed> narrowed_;
  Fetch fetch_;
  std::shared_ptr<RowSource> source_;
  int64_t number_ = 0;
  mutable std::span<const float> whole_;
};

}  // namespace lumen::model::infer
