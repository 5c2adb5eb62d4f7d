// Pictures of a compressed model, as HTML. Proved by tests/model/report/compression/compression_page_test.cpp.
#pragma once

#include <string>

#include "model/report/compression/compression_report.h"

namespace lumen::model {

// Size against quality: all tried models, their Pareto front, the predicted front, and the choice. Empty without
// points.
std::string quality_chart(const CompressionReport& report);
// Errors over layers, a curve for each role; empty for a model without layers.
std::string layer_chart(const CompressionReport& report);
// Layers down, roles across; colour shows bits, the text the format. Also tensors of no layer.
std::string format_map(const CompressionReport& report);
// Weights before and after, of the tensors with the largest errors.
std::string histograms(const CompressionReport& report);
// Names with bars of their sizes.
std::string spike_table(const CompressionReport& report);
// Layer by layer, the most significant first.
std::string expert_table(const CompressionReport& report);
std::string stage_table(const CompressionReport& report);

}  // namespace lumen::model
