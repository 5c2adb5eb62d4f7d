// Reduces a row of logits on the device, so that sampling copies a few KB to the host instead of the whole vocabulary:
// the largest logits, the requested ones, the softmax denominator, and the logits of the groups that lead in the race
// of the draw (sample/race.h). A step does that for all of its rows; further_rows.h does it again where that
// does not suffice, and adds up weights (tallying.h). Proved by tests/model/infer/narrowing_test.cpp.
//
// May include: base, base/threads, graph/elaborate, graph/ir, lang, model/arch, model/arch/family, model/infer/sample,
// run/engine.
// Offers: further_rows.h, step_rows.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "model/arch/model.h"
#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {

// A top-k in two levels. A row is split into parts; the `count` parts with the largest maxima contain the `count`
// largest logits. With many rows, these parts are split into pieces, the same selection is repeated, and the best
// pieces are returned. With one row the parts are returned, because a second kernel would take as long as its launch.
class Narrowing {
 public:
  static constexpr const char* kAsked = "asked";        // input: i32 [R, asked()], token ids, then the key of the race
  static constexpr const char* kScales = "scales";      // input: f32 [R, 1], 1 / temperature
  static constexpr const char* kNarrowed = "narrowed";  // result: f32 [R, width()]
  // Further inputs of masked(): f32 [R, V]; i32 [R, words()], bit i of word w: whether token kBits w + i is allowed;
  // f32 [R, 2], the lowest and the highest logit of a range; i32 [R, 1], the last token with the lowest one.
  static constexpr const char* kLogits = "logits";
  static constexpr const char* kMasks = "masks";
  static constexpr const char* kLimits = "limits";
  static constexpr const char* kLasts = "lasts";
  static constexpr int64_t kBits = 32;
  static constexpr double kFilling = -1e30;  // stands for the logits of other tokens

  enum class Rows : uint8_t { one, many };
  Narrowing(int64_t vocabulary, Rows rows);  // at least kLeast tokens
  static constexpr int64_t kLeast = 8;

  int64_t asked() const { return asked_ + 1; }  // numbers per row
  int64_t width() const { return count_ * piece_ + count_ + asked_ + front_ + front_ * Race::kGroup + 1; }

  int64_t vocabulary() const { return vocabulary_; }
  int64_t groups() const { return groups_; }
  int64_t words() const { return groups_ * Race::kGroup / kBits; }
  // Lines that define `name`: [R, groups() * Race::kGroup], the logits of allowed tokens, from `logits` and `masks`.
  std::string masked_text(const char* name, const std::string& condition) const;

  // Appends the inputs and the result to a step whose only result is its logits.
  void append(const arch::Library& library, graph::Graph& step) const;
  // A graph of its own that reduces rows to their allowed tokens in a range; the logits of others count as -infinity.
  graph::Graph masked(const arch::Library& library) const;
  // Fills a row's inputs, and decodes its result. nullopt if the row has a non-finite value, or allows no token.
  void ask(const Asked& what, std::span<int32_t> asked, float* scale) const;
  std::optional<Narrowed> read(std::span<const float> row, const Asked& what, bool is_masked = false) const;

 private:
  // The function's source in the language: narrowed(logits: f32[R, V], asked, scales, noise: f32[R, groups]), and
  // masks, limits and lasts if it is masked.
  std::string text(bool is_masked) const;
  graph::ValueId expand(const arch::Library& library, graph::Graph& graph, graph::ValueId logits, bool is_masked) const;

  int64_t vocabulary_, count_, part_, piece_, asked_;
  int64_t groups_, front_;  // of the race, and those of them that come out
  int64_t parts() const { return groups_ * Race::kGroup / part_; }
};

}  // namespace lumen::model::infer
