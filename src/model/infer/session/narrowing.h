// A row of logits narrowed on the device, so that the host, which chooses the token, copies a few thousand bytes and
// not the vocabulary: the largest logits, those that were asked for, the sum of all weights, and the logits of the
// groups that lead in the draw's race (sample/race.h). Proved by tests/model/infer/narrowing_test.cpp.
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

namespace lumen::model {

// Rows are cut into parts; the `count` parts with the largest maxima hold the `count` largest numbers. Of many rows
// those parts are cut into pieces, of which the same is true, and the pieces come out; of one row, of which a kernel
// takes as long as it takes to start, the parts do.
class Narrowing {
 public:
  static constexpr const char* kAsked = "asked";        // input: i32 [R, asked()], tokens, then the race's key
  static constexpr const char* kScales = "scales";      // input: f32 [R, 1], 1 / temperature
  static constexpr const char* kNarrowed = "narrowed";  // result: f32 [R, width()]

  enum class Rows : uint8_t { one, many };
  Narrowing(int64_t vocabulary, Rows rows);  // at least kLeast tokens
  static constexpr int64_t kLeast = 8;

  int64_t asked() const { return asked_ + 1; }  // numbers of a row
  int64_t width() const { return count_ * piece_ + count_ + asked_ + front_ + front_ * Race::kGroup + 1; }

  // As a function of the language: narrowed(logits: f32[R, V], asked, scales, noise: f32[R, groups]).
  std::string text() const;
  // Adds the inputs and the result after the step's own, which is its logits.
  void append(const Library& library, graph::Graph& step) const;
  // Fills in a row's inputs, and reads its result: nullopt when a logit of the row is not finite.
  void ask(const Asked& what, std::span<int32_t> asked, float* scale) const;
  std::optional<Narrowed> read(std::span<const float> row, const Asked& what) const;

 private:
  int64_t vocabulary_, count_, part_, piece_, asked_;
  int64_t groups_, front_;  // of the race, and those of them that come out
  int64_t parts() const { return groups_ * Race::kGroup / part_; }
};

}  // namespace lumen::model
