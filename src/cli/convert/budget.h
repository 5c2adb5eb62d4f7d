// `lumen quantize --budget`: formats chosen by what each would cost, then rounded layer by layer, then measured.
#pragma once

#include "cli/convert/calibrated.h"

namespace lumen::cli {

// Error (usage) for what is no budget, and for names that are no formats; nothing is read.
void check_budget(const Shared& shared, const CalibratedFlags& flags);
// Chooses, rounds, writes `out`, measures. With `dry_run` nothing is computed: says what there is to choose among.
int quantize_by_budget(const Shared& shared, const model::Model& model, const std::string& in, const std::string& out,
                       const model::QuantizeOptions& what, CalibratedFlags& flags, bool dry_run);

}  // namespace lumen::cli
