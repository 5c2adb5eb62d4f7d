// The branch of low rank that `ByLayers` gives a rounded weight in the same file (model/arch/low_rank_weights.h): of
// the weight before it is rounded (SVDQuant, Li et al. 2024), or of what rounding took (EoRA, Liu et al. 2024; LQER,
// Zhang et al. 2024). Proved by tests/model/compress/layers/branch_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/compress/strategy/strategy.h"

namespace lumen::model {

enum class BranchMethod : uint8_t {
  svdquant,  // the leading singular vectors of the weight; the rest of it is rounded
  eora,      // of what rounding lost the sum of that rank after which the error of what is computed is least
  lqer       // the same with columns by the roots of their mean squares alone
};

struct BranchOptions {
  int64_t rank = 0;  // 0: no branches
  BranchMethod method = BranchMethod::svdquant;
  FormatRef format;  // of A and B; null: f32

  bool are_wanted() const { return rank > 0; }
  bool before_rounding() const { return method == BranchMethod::svdquant; }
  graph::TapKinds observes() const;  // what is to be known of what weights read
};

// The methods by the names that users write. Error (usage) with all of them.
BranchMethod branch_method(const std::string& name);
const std::vector<std::string>& branch_methods();
const std::string& name_of(BranchMethod method);

// Weights of layers that get a branch, and its rank (options.rank, or as many as a matrix has rows or columns): those
// of `formats` that products alone read, and that do not stay floats. Error where A or B does not divide into blocks of
// the format, or when the model has branches already.
std::map<std::string, int64_t> branch_ranks(const Model& model, const std::map<std::string, FormatRef>& formats,
                                            const BranchOptions& options);

struct Branch {
  Weight a, b;  // [R, K], [N, R], or stacked; in the format

  // to += sign B A, with the numbers that the format holds.
  void add(run::Engine& engine, float sign, std::span<float> to) const;
};

// The branch that is nearest to `values`, which lie as those of the task; `shape`: the weight's. What is known of the
// task's reads weighs as the method says; matrices that nothing is known of count by themselves.
Branch branch_of(run::Engine& engine, const RoundingTask& task, std::span<const float> values,
                 const graph::Shape& shape, int64_t rank, const BranchOptions& options, double damping, uint32_t seed);

}  // namespace lumen::model
