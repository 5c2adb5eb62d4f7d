// What commands that mend a rounded model have in common: the two models, where the result goes, and the held-out text
// over which the distance from the original is measured.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/calibrated.h"
#include "model/infer/measure/perplexity.h"

namespace lumen::cli {

struct MendedFlags {
  std::string original, rounded, out, check;
  LayerTextFlags text;
  int64_t windows = 8;
  bool no_check = false, overwrite = false;

  void add_models(CLI::App& sub);
  void add_check(CLI::App& sub, const char* out_name);
  // Error when the result, one file or a folder, would replace an input, is there already, or cannot be written.
  void refuse_outputs(bool is_file) const;
  // What the check looks at.
  std::vector<model::TokenId> check_tokens(const model::Model& base) const;
  model::PerplexityOptions check_options(const model::Model& base) const;
  std::string check_name() const { return check.empty() ? "the built-in text" : check; }
};

}  // namespace lumen::cli
