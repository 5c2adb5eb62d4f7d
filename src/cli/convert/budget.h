// `lumen quantize --budget`: chooses formats by their cost, quantizes layer by layer, and measures the result.
#pragma once

#include "cli/convert/calibrated.h"

namespace lumen::cli {

// Error (usage) for an invalid budget or an unknown format; no file is read.
void check_budget(const Shared& shared, const CalibratedFlags& flags);
// Chooses formats, quantizes, writes `out` and measures. With `dry_run` it only prints the choices and their sizes.
int quantize_by_budget(const Shared& shared, const model::arch::Model& model, const std::string& in,
                       const std::string& out, const model::compress::QuantizeOptions& what, CalibratedFlags& flags,
                       bool dry_run);

}  // namespace lumen::cli
