// Looks again at the rows of a step whose logits stay on the device: reduces them to tokens that a grammar allows, or
// within a range of logits (narrowing.h), and adds up their weights (tallying.h). Compiled on first use. Proved by
// tests/model/infer/narrowing_test.cpp and tests/model/infer/narrowing/further_rows_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/infer/narrowing/narrowing.h"
#include "run/engine/engine.h"

namespace lumen::model::infer {

class FurtherRows {
 public:
  FurtherRows(run::Engine& engine, const arch::Library& library, const Narrowing& narrowing)
      : engine_(engine), library_(library), narrowing_(narrowing) {}

  // The graphs that are compiled for the rows of steps: for look(), and for count(), which has the same masks.
  static graph::Graph looking(const arch::Library& library, const Narrowing& narrowing);
  static graph::Graph counting(const arch::Library& library, const Narrowing& narrowing);
  // Compiles what steps with so many rows may need; false if that is done.
  bool prepare(int64_t rows);
  // `logits`: f32 [rows, vocabulary], of which each row is asked for once at most. Results are in the order of `which`.
  std::vector<std::optional<Narrowed>> look(const run::DeviceTensorRef& logits, std::span<const RowSource::Look> which);
  std::vector<Tallies> count(const run::DeviceTensorRef& logits, std::span<const RowSource::Count> which);
  int64_t uploaded_masks() const { return uploaded_masks_; }  // masks of rows that have gone to the device so far

 private:
  struct Program {
    std::shared_ptr<run::Program> program;
    std::map<std::string, run::DeviceTensorRef> in;
  };
  struct OfRows {  // for steps with so many rows
    Program look, count;
    run::DeviceTensorRef masks;
    std::vector<int32_t> words;  // of the masks on the device
  };
  Program compiled(const graph::Graph& graph, int64_t rows, const run::DeviceTensorRef& masks) const;
  OfRows& of_rows(int64_t rows);
  void put_masks(OfRows& of, int64_t rows, const std::vector<const TokenSet*>& masks);

  run::Engine& engine_;
  const arch::Library& library_;
  Narrowing narrowing_;
  std::map<int64_t, OfRows> by_rows_;
  int64_t uploaded_masks_ = 0;
};

}  // namespace lumen::model::infer
