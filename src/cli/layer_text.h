// Calibration text: the tokens on which commands run a model layer by layer. Proved by
// tests/cli/convert/experts/experts_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "model/calibrate/layer_run.h"
#include "model/infer/measure/perplexity.h"

namespace lumen::cli {

// The tokens that calibrate a model. Rows of messages or answers are rendered with the model's chat template, as
// training renders them, and concatenated; any other input is learned_text() with BOS at `place`. Rows that give no
// example are reported.
std::vector<model::text::TokenId> calibration_tokens(const model::arch::Model& model, const std::string& file,
                                                     model::infer::BosPlace place, const std::string& doing);

struct LayerTextFlags {
  std::vector<std::string> texts;  // files or folders; empty: the built-in text
  std::string precision = "f32", bos = "front";
  int64_t chunks = 128;
  model::calibrate::LayerRunOptions run;
  // Set by reading: some whole windows that follow those that `chunks` takes.
  std::vector<model::text::TokenId> spare;

  void add_flags(CLI::App& sub);
  // The tokens of all documents, concatenated; sets run.products and run.bos for this model. Error (usage) for an
  // unknown precision.
  std::vector<model::text::TokenId> read(const model::arch::Model& model);
  // The same per file: each cut to whole windows, and each with an equal share of `chunks`; the unused share of a short
  // file goes to the others.
  std::vector<std::vector<model::text::TokenId>> read_each(const model::arch::Model& model);
  // "wiki.txt, code.txt", or "the built-in text".
  std::string names() const;
};

}  // namespace lumen::cli
