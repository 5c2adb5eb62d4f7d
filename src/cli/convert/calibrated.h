// `lumen quantize --strategy`: rounding layer by layer, by what layers read of a text.
#pragma once

#include <filesystem>

#include "cli/command.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "model/file/own_input.h"

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

// Files as they are now: a run goes on only with the very same.
std::string file_identity(const model::Paths& files);

struct CalibratedFlags : LayerTextFlags {
  std::string strategy, folder;
  model::ByLayersOptions options;
  // With a budget: what formats are chosen among, windows that scores are computed on, and where the report goes.
  std::string budget, json, html;
  std::vector<std::string> candidates;
  int64_t score_chunks = 32;
};

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags);
// Error (usage) for an unknown strategy or precision; nothing is read.
void check_calibrated(const Shared& shared, const CalibratedFlags& flags);
// What the flags say, once they have read the text; `in` and the text identify the run.
model::ByLayersOptions by_layers_options(const model::Model& model, const std::string& in,
                                         const CalibratedFlags& flags);
// With progress and a time that is left; false when it was interrupted, and then says how to go on.
bool run_by_layers(model::ByLayers& run, const std::filesystem::path& folder);
// What was done to each weight, as a table.
std::string table_of(const std::vector<model::RoundedTensor>& tensors);

// Rounds and writes. Exit code.
int quantize_by_layers(const Shared& shared, const model::Model& model, const std::string& in, model::Destination to,
                       const model::QuantizeOptions& what, CalibratedFlags& flags);

}  // namespace lumen::cli
