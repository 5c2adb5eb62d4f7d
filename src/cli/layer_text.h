// Texts that commands run models on layer by layer, and how. Proved by tests/cli/convert/experts/experts_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "model/calibrate/layer_run.h"
#include "model/infer/measure/perplexity.h"

namespace lumen::cli {

// What a model is calibrated on: of rows with messages or answers every example's tokens, as training has them through
// the chat template that the model has, one behind the other; of all else learned_text() with BOS at its place. What
// becomes of rows that give none is said.
std::vector<model::TokenId> calibration_tokens(const model::Model& model, const std::string& file,
                                               model::BosPlace place, const std::string& doing);

struct LayerTextFlags {
  std::vector<std::string> texts;  // files or folders; none: the built-in text
  std::string precision = "f32", bos = "front";
  int64_t chunks = 128;
  model::LayerRunOptions run;

  void add_flags(CLI::App& sub, const char* group);
  // Tokens of the texts, one behind the other, and run.products and run.bos for this model. Error (usage) for an
  // unknown precision.
  std::vector<model::TokenId> read(const model::Model& model);
  // The same, text by text: of several whole windows, and of `chunks` fair shares; what a short one leaves goes to the
  // others.
  std::vector<std::vector<model::TokenId>> read_each(const model::Model& model);
  // "wiki.txt, code.txt", or "the built-in text".
  std::string names() const;
};

}  // namespace lumen::cli
