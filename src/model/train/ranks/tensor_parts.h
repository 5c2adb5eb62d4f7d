// A grid of ranks: neighbouring ranks hold one model together, each a part of its matrices (tensor parallel), and the
// groups share each batch (data parallel). Cuts a rank's part out of a tensor, and joins the parts again. Proved by
// tests/model/train/ranks/tensor_parts_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/partition/partition.h"
#include "model/arch/model.h"
#include "model/recipe/recipe.h"
#include "run/engine/program/program.h"
#include "run/ranks/ranks.h"

namespace lumen::model::train {

// The number of groups that share a batch. Error (usage) when the group size does not divide the ranks, or the recipe
// uses a feature that parts of matrices do not support.
int data_ranks(const recipe::Recipe& recipe, int ranks);

// Why a tensor cannot be split in its layout; empty: it can.
std::string refusal_to_cut(const graph::Type& whole, const graph::Split& split, int ranks);
graph::Type part_type(const graph::Type& whole, const graph::Split& split, int ranks);
// Copies of a part's bytes, in the layout of the element type.
std::vector<uint8_t> part_bytes(const graph::Type& whole, const graph::Split& split, int ranks, int rank,
                                std::span<const uint8_t> bytes);
void place_part(const graph::Type& whole, const graph::Split& split, int ranks, int rank, std::span<const uint8_t> part,
                std::span<uint8_t> bytes);

class TensorParts {
 public:
  // `group`: the ranks that hold one model together.
  TensorParts(std::shared_ptr<run::Communicator> group, const graph::TensorSplit& partition)
      : group_(std::move(group)), partition_(partition) {}

  run::Communicator& group() { return *group_; }
  // A tensor's split by name; null: every rank has the whole.
  const graph::Split* split_of(const std::string& name) const;
  // Types of a tensor that may be held in parts.
  graph::Type whole_type(const std::string& name, const graph::Type& own) const;
  graph::Type own_type(const std::string& name, const graph::Type& whole) const;
  std::vector<uint8_t> own_part(const std::string& name, const graph::Type& whole,
                                std::span<const uint8_t> bytes) const;
  // Collective in the group; all ranks get the result.
  std::vector<uint8_t> gathered(const std::string& name, const graph::Type& whole, std::span<const uint8_t> own);
  // The exchange of a program's values; `overlaps`: concurrent with launches that do not depend on them, where GPUs
  // can.
  run::Exchange exchange(bool overlaps);

 private:
  std::shared_ptr<run::Communicator> group_;
  graph::TensorSplit partition_;
};

// Both directions of the grid; null: one rank along it.
struct RankGrid {
  std::shared_ptr<run::Communicator> data, tensor;
};
RankGrid grid_of(const std::shared_ptr<run::Communicator>& all, const recipe::Recipe& recipe);

}  // namespace lumen::model::train
