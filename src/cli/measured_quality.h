// Measured quality of a model compared with a base model, in the form that reports use.
#pragma once

#include <optional>
#include <string>

#include "model/infer/measure/perplexity_divergence.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// The model's figures, and the base's on the same tokens (perplexity only).
model::report::MeasuredQuality quality_of(const model::infer::Divergence& d);
model::report::MeasuredQuality base_quality_of(const model::infer::Divergence& d);

// "2026-01-31", in UTC.
std::string today();

}  // namespace lumen::cli
