// `lumen quantize --experts`: formats for the experts of mixtures, by their importance on the calibration text.
//
// May include: base, base/file, cli, model/compress, model/compress/split, model/report/compression.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/layer_text.h"
#include "cli/names.h"
#include "model/compress/quantize.h"
#include "model/compress/split/expert_classes.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

struct ExpertFlags {
  std::vector<std::string> formats;  // one per class, from most to fewest bits
  std::optional<double> bits;        // upper limit of the average bits per weight
  bool are_given() const { return !formats.empty(); }
};

// Error (usage) for names that are no formats or that cannot be quantized to, formats that are not in order of falling
// bits, and a bit budget below the lowest class.
void check_experts(const Shared& shared, const ExpertFlags& flags);

struct ExpertChoice {
  model::arch::Model model;  // with the experts split into parts
  std::string cut;           // description of the split, for the keys of runs
  std::vector<model::report::CompressionReport::Expert> experts;
};
// Runs the text, assigns experts to classes and splits the tensors. `what` then has the formats of the parts, and of
// shared experts, which get the highest class's format unless TYPE has more bits. Intermediate activations are stored
// next to `out` during the run. Error where the model has no experts.
ExpertChoice with_expert_classes(const Shared& shared, const model::arch::Model& model,
                                 model::compress::QuantizeOptions& what, const std::string& out, LayerTextFlags& text,
                                 const ExpertFlags& flags);
// A table of layers, their classes, and the most important experts.
std::string table_of(const std::vector<model::report::CompressionReport::Expert>& experts);

}  // namespace lumen::cli
