// Ranks as a grid: neighbouring ranks hold one model together, each a part of its matrices (tensor parallel), and as
// many such groups as there are share each batch (data parallel). What of a tensor is one rank's, and the whole of it
// again. Proved by tests/model/train/ranks/tensor_parts_test.cpp.
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

namespace lumen::model {

// How many groups share a batch. Error (usage) when ranks of a group do not divide them, or the recipe asks for what
// parts of matrices do not serve.
int data_ranks(const Recipe& recipe, int ranks);

// A tensor's split, if it can be cut so where it lies: what stands in its way otherwise.
std::string refusal_to_cut(const graph::Type& whole, const graph::Split& split, int ranks);
graph::Type part_type(const graph::Type& whole, const graph::Split& split, int ranks);
// Bytes of a tensor as its element has them.
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
  // How a tensor is split, by its name; null: every rank has all of it.
  const graph::Split* split_of(const std::string& name) const;
  // Types of one that is held in parts, or not.
  graph::Type whole_type(const std::string& name, const graph::Type& own) const;
  graph::Type own_type(const std::string& name, const graph::Type& whole) const;
  std::vector<uint8_t> own_part(const std::string& name, const graph::Type& whole,
                                std::span<const uint8_t> bytes) const;
  // All ranks of the group call it, and all get it.
  std::vector<uint8_t> gathered(const std::string& name, const graph::Type& whole, std::span<const uint8_t> own);
  // What programs exchange values through; `overlaps`: beside launches that do not wait for them, where GPUs can.
  run::Exchange exchange(bool overlaps);

 private:
  std::shared_ptr<run::Communicator> group_;
  graph::TensorSplit partition_;
};

// Both directions of the grid; null: there is one rank along it.
struct RankGrid {
  std::shared_ptr<run::Communicator> data, tensor;
};
RankGrid grid_of(const std::shared_ptr<run::Communicator>& all, const Recipe& recipe);

}  // namespace lumen::model
