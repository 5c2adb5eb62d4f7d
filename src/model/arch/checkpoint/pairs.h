// The row order of projections with rotary position embedding. HF files keep the two partners of a rotation half a head
// apart, [heads, 2, d/2] rows; GGUF files (and our graphs) adjacent, [heads, d/2, 2]. The family's source marks
// parameters that need it (hf_halves).
#pragma once

#include "model/arch/model.h"

namespace lumen::model {

// Reorders whole rows; Error when rows of this format cannot be moved separately (a row would leave its tile).
// `turned`: number of rotated rows of each head, its first ones; 0: all. The rows of a vector are its elements.
void halves_to_pairs(Weight& w, int64_t heads, int64_t turned = 0);
void pairs_to_halves(Weight& w, int64_t heads, int64_t turned = 0);

// Error naming `file` and the config keys involved, where the rows of a parameter do not form heads with rotated pairs.
void check_pairs(const Family& family, const graph::Config& config, const Parameter& p, const std::string& file);

}  // namespace lumen::model
