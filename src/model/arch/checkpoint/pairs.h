// The row order of rotated projections. HF files keep the two partners of a rotation half a head apart, [heads, 2, d/2]
// rows; GGUF files (and our graphs) side by side, [heads, d/2, 2]. Which parameters need it is said by the family's
// text (hf_halves).
#pragma once

#include "model/arch/model.h"

namespace lumen::model {

// Reorders whole rows; Error when rows of this format cannot be moved one by one (a row would leave its tile).
// `turned`: rows of each head that are rotated, its first ones; 0: all. The rows of a vector are its elements.
void halves_to_pairs(Weight& w, int64_t heads, int64_t turned = 0);
void pairs_to_halves(Weight& w, int64_t heads, int64_t turned = 0);

// Error naming `file`, and the config keys that say so, where the rows of a parameter are no heads that turn in pairs.
void check_pairs(const Family& family, const graph::Config& config, const Parameter& p, const std::string& file);

}  // namespace lumen::model
