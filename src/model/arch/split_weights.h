// Weights whose columns, or whose experts, are stored in parts, each as a tensor with its own format: the metadata that
// describes them, and the parameters of such a model. Proved by tests/model/arch/split_weights_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/transform/split_columns.h"
#include "graph/transform/split_experts/split_experts.h"
#include "model/arch/model.h"

namespace lumen::model::arch {

// The metadata key: strings "WEIGHT N0 N1 .." or "WEIGHT N0 N1 .. OF", where WEIGHT is the GGUF name of a weight of the
// family that the file lacks; WEIGHT.0, WEIGHT.1, .. hold N0, N1, .. of its columns. OF is a weight with as many
// columns, whose vector OF.order gives the permutation of the columns; several weights may share one. Folders have the
// same in config.json (kSplitMember). Programs that do not know the key miss a weight.
inline constexpr const char* kSplitColumns = "lumen.split.columns";
inline constexpr const char* kSplitMember = "lumen_split_columns";
// The same for stacked weights and their experts. OF.order maps each expert's number in the router to its position
// among the parts.
inline constexpr const char* kSplitExperts = "lumen.split.experts";
inline constexpr const char* kSplitExpertsMember = "lumen_split_experts";
inline constexpr const char* kSplitModelType = "lumen_split";  // model_type of such folders: others refuse it
inline constexpr const char* kOrderRole = "order";

// Keys of GGUF files, and the equivalent members of config.json.
struct SplitKey {
  const char *key, *member;
};
inline constexpr SplitKey kSplitKeys[] = {{kSplitColumns, kSplitMember}, {kSplitExperts, kSplitExpertsMember}};
// The first of the keys that a model has, or null.
const char* split_key_of(const Model& model);

// The parameter with the order of a weight's columns or experts, and of weights that share it.
std::string order_parameter(const std::string& weight);

// The parsed keys, by parameter name.
struct WeightSplits {
  std::vector<graph::ColumnSplit> columns;
  std::vector<graph::ExpertSplit> experts;
};
// Error naming `source` when a key is malformed: an unknown weight of the family, parts that do not add up to the
// weight, a weight named twice.
WeightSplits weight_splits(const Family& family, const graph::Config& config, const file::GgufMetadata& metadata,
                           const std::string& source);
WeightSplits weight_splits(const Model& model);
// Writes a key; an empty list removes it. LUMEN_CHECKs that the family has the weights.
void set_column_splits(Model& model, std::span<const graph::ColumnSplit> splits);
void set_expert_splits(Model& model, std::span<const graph::ExpertSplit> splits);

// A parameter derived from a weight: its names with the suffix `end`, without layout changes in HF folders.
Parameter parameter_beside(const Parameter& p, const std::string& end, graph::Shape shape);

// The family's parameters with split weights replaced by their parts, which keep the role; orders are frozen vectors.
std::vector<Parameter> with_parts(std::vector<Parameter> parameters, const WeightSplits& splits);
// A model's parameters by its family, config and metadata (parts, and low-rank branches: low_rank_weights.h): without
// those that its config leaves out, and all.
std::vector<Parameter> own_parameters(const Model& model);
std::vector<Parameter> all_own_parameters(const Model& model);

// Error naming `source` when an order vector is no permutation.
void require_orders(const Model& model, const std::string& source);

}  // namespace lumen::model::arch
