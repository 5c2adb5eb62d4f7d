// `lumen quantize --strategy`: rounding layer by layer, by what layers read of a text.
#pragma once

#include "cli/command.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"

namespace lumen::cli {

// The text that layers read, and how.
struct LayerTextFlags {
  std::string text, precision = "f32", bos = "front";
  int64_t chunks = 128;
  model::LayerRunOptions run;

  void add_flags(CLI::App& sub, const char* group);
  // Tokens of the text, and run.products and run.bos for this model. Error (usage) for an unknown precision.
  std::vector<model::TokenId> read(const model::Model& model);
};

struct CalibratedFlags : LayerTextFlags {
  std::string strategy, folder;
  model::ByLayersOptions options;
};

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags);
// Error (usage) for an unknown strategy or precision; nothing is read.
void check_calibrated(const Shared& shared, const CalibratedFlags& flags);
// Rounds and writes `out`. Exit code.
int quantize_by_layers(const Shared& shared, const model::Model& model, const std::string& in, const std::string& out,
                       const model::QuantizeOptions& what, CalibratedFlags& flags);

}  // namespace lumen::cli
