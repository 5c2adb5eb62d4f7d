// `lumen quantize --experts`: experts of mixtures in formats by how much they matter on the texts.
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
  std::vector<std::string> formats;  // of the classes, of falling bits
  std::optional<double> bits;        // on average at most
  bool are_given() const { return !formats.empty(); }
};

// Error (usage) for names that are no formats or can only be read, formats that do not fall, and bits that the lowest
// class has not.
void check_experts(const Shared& shared, const ExpertFlags& flags);

struct ExpertChoice {
  model::Model model;  // with experts in parts
  std::string cut;     // what is where, for keys of runs
  std::vector<model::CompressionReport::Expert> experts;
};
// Runs the texts, chooses, cuts; `what` then says the formats of parts, and of experts that all tokens share: they get
// the highest class's unless TYPE has more bits. What goes from layer to layer lies beside `out` meanwhile. Error
// where the model has no experts.
ExpertChoice with_expert_classes(const Shared& shared, const model::Model& model, model::QuantizeOptions& what,
                                 const std::string& out, LayerTextFlags& text, const ExpertFlags& flags);
// Layers, their classes, and the experts that matter most, as a table.
std::string table_of(const std::vector<model::CompressionReport::Expert>& experts);

}  // namespace lumen::cli
