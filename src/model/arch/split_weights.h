// Weights whose columns, or whose experts, are stored in parts, each a tensor of its own in a format of its own: what a
// model's file says of them, and the parameters that the model then has. Proved by
// tests/model/arch/split_weights_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/transform/split_columns.h"
#include "graph/transform/split_experts/split_experts.h"
#include "model/arch/model.h"

namespace lumen::model {

// The metadata key: texts "WEIGHT N0 N1 .." or "WEIGHT N0 N1 .. OF", WEIGHT being the GGUF name of a weight of the
// family that is not there; WEIGHT.0, WEIGHT.1, .. hold so many of its columns. OF is the weight, of as many columns,
// whose vector OF.order says in which order they do; several may share one. Folders say the same in config.json
// (kSplitMember). Programs that do not know the key miss a weight.
inline constexpr const char* kSplitColumns = "lumen.split.columns";
inline constexpr const char* kSplitMember = "lumen_split_columns";
// The same of stacked weights: so many of the experts. OF.order says, of each expert by the number that the router has
// for it, which one it is among the parts.
inline constexpr const char* kSplitExperts = "lumen.split.experts";
inline constexpr const char* kSplitExpertsMember = "lumen_split_experts";
inline constexpr const char* kSplitModelType = "lumen_split";  // model_type of such folders: others refuse it
inline constexpr const char* kOrderRole = "order";

// Keys of files, and the members of config.json that say the same.
struct SplitKey {
  const char *key, *member;
};
inline constexpr SplitKey kSplitKeys[] = {{kSplitColumns, kSplitMember}, {kSplitExperts, kSplitExpertsMember}};
// The first of the keys that a model has, or null.
const char* split_key_of(const Model& model);

// The parameter that holds the order of a weight's columns, or experts, and of those that share it.
std::string order_parameter(const std::string& weight);

// What the keys say, by the names of parameters.
struct WeightSplits {
  std::vector<graph::ColumnSplit> columns;
  std::vector<graph::ExpertSplit> experts;
};
// Error naming `source` for anything but the above: weights that the family has not, parts that do not sum to what the
// weight has, a weight named twice.
WeightSplits weight_splits(const Family& family, const graph::Config& config, const GgufMetadata& metadata,
                           const std::string& source);
WeightSplits weight_splits(const Model& model);
// Writes a key; no splits erase it. LUMEN_CHECKs that the family has the weights.
void set_column_splits(Model& model, std::span<const graph::ColumnSplit> splits);
void set_expert_splits(Model& model, std::span<const graph::ExpertSplit> splits);

// What belongs to a weight, by its names with another end: in folders it lies as it is.
Parameter parameter_beside(const Parameter& p, const std::string& end, graph::Shape shape);

// The family's parameters with parts in the place of what is split, each with its role; orders are frozen vectors.
std::vector<Parameter> with_parts(std::vector<Parameter> parameters, const WeightSplits& splits);
// The model's own, as its family, config and metadata have them (parts, and branches of low rank: low_rank_weights.h):
// without those that its config leaves out, and all.
std::vector<Parameter> own_parameters(const Model& model);
std::vector<Parameter> all_own_parameters(const Model& model);

// Error naming `source` when a vector of an order is no permutation.
void require_orders(const Model& model, const std::string& source);

}  // namespace lumen::model
