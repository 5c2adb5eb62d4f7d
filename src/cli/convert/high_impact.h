// `lumen quantize --high-impact`: stores the most important columns of weights in a higher-precision format.
#pragma once

#include "cli/convert/calibrated.h"
#include "model/compress/split/split.h"

namespace lumen::cli {

// The parsed options. Error (usage) for an unknown format, a share outside 0 to 1, or an invalid regular expression.
struct HighImpact {
  std::vector<FormatRef> formats;
  std::vector<double> ratios;                                   // those without a regular expression, ascending
  std::vector<std::pair<std::string, double>> ratios_of_names;  // the last match wins
};
HighImpact high_impact(const FormatLibrary& formats, const CalibratedFlags& flags);
// The same, and requires one format and at most one ratio where no budget chooses among them.
void check_high_impact(const Shared& shared, const CalibratedFlags& flags);

// Ranks columns on the text and splits the weights that `what` quantizes; `what` then has the formats of the parts.
// With `sizes` columns keep their order and nothing is computed. Intermediate activations are stored next to `out`
// during the run.
model::arch::Model with_high_impact(const Shared& shared, const model::arch::Model& model,
                                    model::compress::QuantizeOptions& what, const std::string& out,
                                    CalibratedFlags& flags, bool sizes);

// A description of the column split, for the keys of runs.
std::string identity_of(std::span<const model::compress::ColumnGroup> groups,
                        std::span<const model::compress::WeightParts> parts);

}  // namespace lumen::cli
