// What was measured of a model beside a base, as reports have it.
#pragma once

#include <optional>
#include <string>

#include "model/infer/measure/perplexity_divergence.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// What the model has, and what the base has on the same tokens (its perplexity alone).
model::MeasuredQuality quality_of(const model::Divergence& d);
model::MeasuredQuality base_quality_of(const model::Divergence& d);

// "2026-01-31", in universal time.
std::string today();

}  // namespace lumen::cli
