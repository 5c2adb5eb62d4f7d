// Low-rank branches: weights with an additional low-rank term, y = x W^T + (x A^T) B^T, in a format of its own: the
// metadata that describes them, and the parameters of such a model. Proved by
// tests/model/arch/low_rank_weights_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model::arch {

// The metadata key: strings "WEIGHT R", where WEIGHT is the GGUF name of a matrix of the model [N, K], or of stacked
// ones [E, N, K]; WEIGHT.a is [R, K] and WEIGHT.b [N, R], with a leading axis E if stacked. Folders have the same in
// config.json (kLowRankMember). Programs that do not know the key would ignore the branches.
inline constexpr const char* kLowRankWeights = "lumen.low_rank";
inline constexpr const char* kLowRankMember = "lumen_low_rank";
inline constexpr const char* kLowRankModelType = "lumen_low_rank";  // model_type of such folders: others refuse it
inline constexpr const char* kBranchRole = "low_rank";

struct LowRankBranch {
  std::string weight;  // a parameter
  int64_t rank = 0;    // from 1 to the smaller dimension
};

// The parameter names of a branch's A and B.
std::string branch_a(const std::string& weight);
std::string branch_b(const std::string& weight);

// The branches of a model, by parameter name.
std::vector<LowRankBranch> low_rank_branches(const Model& model);
// Writes the key; an empty list removes it. LUMEN_CHECKs that the model has the weights.
void set_low_rank_branches(Model& model, std::span<const LowRankBranch> branches);

// The parameters, with A and B after each weight that has a branch: frozen, and excluded from quantization rules. Error
// naming `source` when the key is malformed: an unknown weight, a rank that does not fit, a weight named twice.
std::vector<Parameter> with_branches(std::vector<Parameter> parameters, const file::GgufMetadata& metadata,
                                     const std::string& source);

}  // namespace lumen::model::arch
