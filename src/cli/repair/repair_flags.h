// The shared part of `correct` and `recover`: the two models, the output path, and the held-out text on which the
// divergence from the original is measured.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/calibrated.h"
#include "model/infer/measure/perplexity.h"

namespace lumen::cli {

struct RepairFlags {
  std::string original, rounded, out, check;
  LayerTextFlags text;
  int64_t windows = 8;
  bool no_check = false, overwrite = false;

  void add_models(CLI::App& sub);
  void add_check(CLI::App& sub);
  // Error when the output, one file or a folder, would replace an input, already exists, or cannot be written.
  void refuse_outputs(bool is_file) const;
  // The tokens on which the divergence is measured.
  std::vector<model::text::TokenId> check_tokens(const model::arch::Model& base) const;
  model::infer::PerplexityOptions check_options(const model::arch::Model& base) const;
  std::string check_name() const { return check.empty() ? "the built-in text" : check; }
};

}  // namespace lumen::cli
