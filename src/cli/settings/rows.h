// The parts of the table, by what the options are about.
#pragma once

#include <span>

#include "cli/settings/settings.h"

namespace lumen::cli {

std::span<const Setting> shared_rows();      // of several commands: devices, weights, adapters, drafts, caches
std::span<const Setting> generating_rows();  // run, chat
std::span<const Setting> serving_rows();     // serve
std::span<const Setting> measuring_rows();   // bench, perplexity, compare, eval, embed
std::span<const Setting> converting_rows();  // quantize, imatrix, export, merge, and texts to calibrate on
std::span<const Setting> training_rows();    // train
std::span<const Setting> hub_rows();         // pull, list, rm, ps

// Rows of these commands, whose variables begin with the command's name, because other commands have options of the
// same names: LUMEN_REWRITE_STEPS.
std::span<const Setting> repairing_rows();   // rewrite, correct, recover
std::span<const Setting> inspecting_rows();  // all others of this floor
// Those of the applications, which the build registers with their commands (cmake/applications.cmake).
std::vector<std::span<const Setting>> application_rows();

}  // namespace lumen::cli
