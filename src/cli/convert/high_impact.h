// `lumen quantize --high-impact`: the most important columns of weights in a format of their own.
#pragma once

#include "cli/convert/calibrated.h"
#include "model/compress/split/split.h"

namespace lumen::cli {

// What the flags say. Error (usage) for what is no format, no share (a part of 1), or no regular expression.
struct HighImpact {
  std::vector<FormatRef> formats;
  std::vector<double> ratios;                                   // without a regular expression, in rising order
  std::vector<std::pair<std::string, double>> ratios_of_names;  // the last that fits is taken
};
HighImpact high_impact(const FormatLibrary& formats, const CalibratedFlags& flags);
// The same, and one format and at most one share of all where nothing is chosen.
void check_high_impact(const Shared& shared, const CalibratedFlags& flags);

// Columns ranked on the text, and cut from the weights that `what` rounds; `what` then says the formats of parts. With
// `sizes` columns stay in their order: nothing is computed. What goes from layer to layer lies beside `out` meanwhile.
model::Model with_high_impact(const Shared& shared, const model::Model& model, model::QuantizeOptions& what,
                              const std::string& out, CalibratedFlags& flags, bool sizes);

// What columns are where, for keys of runs.
std::string identity_of(std::span<const model::ColumnGroup> groups, std::span<const model::WeightParts> parts);

}  // namespace lumen::cli
