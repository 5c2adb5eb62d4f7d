// Branches of low rank: weights beside which the file holds a second, narrow way, y = x W^T + (x A^T) B^T, in a format
// of its own: what the file says of them, and the parameters that the model then has. Proved by
// tests/model/arch/low_rank_weights_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model {

// The metadata key: texts "WEIGHT R", WEIGHT being the GGUF name of a matrix of the model [N, K], or of stacked ones
// [E, N, K]; WEIGHT.a is [R, K] and WEIGHT.b [N, R], each of E where they are stacked. Folders say the same in
// config.json (kLowRankMember). Programs that do not know the key would leave the branches away.
inline constexpr const char* kLowRankWeights = "lumen.low_rank";
inline constexpr const char* kLowRankMember = "lumen_low_rank";
inline constexpr const char* kLowRankModelType = "lumen_low_rank";  // model_type of such folders: others refuse it
inline constexpr const char* kBranchRole = "low_rank";

struct LowRankBranch {
  std::string weight;  // a parameter
  int64_t rank = 0;    // at least 1, and at most as many as rows or columns
};

// The parameters of a branch.
std::string branch_a(const std::string& weight);
std::string branch_b(const std::string& weight);

// Those a model has, by the names of its parameters.
std::vector<LowRankBranch> low_rank_branches(const Model& model);
// Writes the key; no branches erase it. LUMEN_CHECKs that the model has the weights.
void set_low_rank_branches(Model& model, std::span<const LowRankBranch> branches);

// The parameters, with A and B behind each weight that has a branch: frozen, and never rounded with the others. Error
// naming `source` for anything but what the key may say: weights that are none of these, ranks that do not fit, a
// weight named twice.
std::vector<Parameter> with_branches(std::vector<Parameter> parameters, const GgufMetadata& metadata,
                                     const std::string& source);

}  // namespace lumen::model
