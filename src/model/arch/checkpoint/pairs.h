// Orders of rows and columns that differ between HF files, and GGUF files and our graphs. The family's source marks
// parameters that need it: of projections with rotary position embedding HF files keep the two partners of a rotation
// half a head apart, [heads, 2, d/2] rows, GGUF files adjacent, [heads, d/2, 2] (hf_halves); other heads stand in
// groups there, and by their place in the group here (hf_grouped).
#pragma once

#include "model/arch/model.h"

namespace lumen::model::arch {

// Reorders whole rows; Error when rows of this format cannot be moved separately (a row would leave its tile).
// `turned`: number of rotated rows of each head, its first ones; 0: all. The rows of a vector are its elements.
void halves_to_pairs(Weight& w, int64_t heads, int64_t turned = 0);
void pairs_to_halves(Weight& w, int64_t heads, int64_t turned = 0);

// All of a parameter's weight, from the order of HF files to ours and back; Error where its format does not allow it.
void to_own_order(Weight& w, const Parameter& p);
void to_folder_order(Weight& w, const Parameter& p);
// The same for matrices that have only its rows (B and magnitudes of an adapter), or its columns (A).
void rows_to_own_order(Weight& w, const Parameter& p);
void rows_to_folder_order(Weight& w, const Parameter& p);
void columns_to_own_order(Weight& w, const Parameter& p);
void columns_to_folder_order(Weight& w, const Parameter& p);
bool is_reordered(const Parameter& p);  // whether the orders differ

// Error naming `file` and the config keys involved, where the rows of a parameter do not form heads with rotated pairs.
void check_pairs(const Family& family, const graph::Config& config, const Parameter& p, const std::string& file);

}  // namespace lumen::model::arch
