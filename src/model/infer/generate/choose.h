// Chooses the next tokens of outputs from the rows of a step. Where reduced rows do not decide, several rows are looked
// at again together on the device (model/infer/narrowing), and only what that leaves open takes whole rows. Proved by
// tests/model/infer/narrowing_test.cpp and tests/model/infer/narrowing/further_rows_test.cpp.
#pragma once

#include <span>

#include "model/infer/generate/answer.h"

namespace lumen::model::infer {

struct Choice {
  Answer* answer;
  const LogitRow* row;
};

// Each answer's next draw() from its row takes what is chosen here, on several threads. An answer whose choice fails is
// left out: its draw fails in the same way, and the error is its own.
void choose_tokens(std::span<const Choice> choices);

}  // namespace lumen::model::infer
