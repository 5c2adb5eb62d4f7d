// `lumen quantize --strategy`: rounding layer by layer, by what layers read of a text.
#pragma once

#include "cli/command.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"

namespace lumen::cli {

struct CalibratedFlags {
  std::string strategy, text, folder, precision = "f32", bos = "front";
  model::ByLayersOptions options;
  int64_t chunks = 128;
};

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags);
// Error (usage) for an unknown strategy or precision; nothing is read.
void check_calibrated(const Shared& shared, const CalibratedFlags& flags);
// Rounds and writes. Exit code.
int quantize_by_layers(const Shared& shared, const model::Model& model, const std::string& in, model::Destination to,
                       const model::QuantizeOptions& what, CalibratedFlags& flags);

}  // namespace lumen::cli
