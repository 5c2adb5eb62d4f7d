// Reduces the rows of a step's logits again, each to the tokens that a grammar allows: the masks go to the device, and
// the logits stay there. Compiled on first use. Proved by tests/model/infer/narrowing_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/infer/narrowing/narrowing.h"
#include "run/engine/engine.h"

namespace lumen::model {

class MaskedRows {
 public:
  // For logits of `rows` rows, f32 [rows, vocabulary].
  MaskedRows(run::Engine& engine, const Library& library, const Narrowing& narrowing, int64_t rows);

  // Results in the order of `which`; `asked` is that of the rows, by number.
  std::vector<std::optional<Narrowed>> narrow(const run::DeviceTensorRef& logits, std::span<const Asked> asked,
                                              std::span<const RowSource::Masked> which);

 private:
  Narrowing narrowing_;
  int64_t rows_;
  std::shared_ptr<run::Program> program_;
  run::DeviceTensorRef asked_, scales_, masks_;
};

}  // namespace lumen::model
