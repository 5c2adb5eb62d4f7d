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

}  // namespace lumen::cli
