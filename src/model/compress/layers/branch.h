// The low-rank branch that `ByLayers` adds to a rounded weight in the same file (model/arch/low_rank_weights.h): of the
// weight before rounding (SVDQuant, Li et al. 2024), or of the rounding error (EoRA, Liu et al. 2024; LQER, Zhang et
// al. 2024). Proved by tests/model/compress/layers/branch_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/compress/strategy/strategy.h"

namespace lumen::model::compress {

enum class BranchMethod : uint8_t {
  svdquant,  // the leading singular vectors of the weight; the remainder is rounded
  eora,      // the low-rank fit of the rounding error with the least output error
  lqer       // the same, with columns weighted only by their RMS activations
};

struct BranchOptions {
  int64_t rank = 0;  // 0: no branches
  BranchMethod method = BranchMethod::svdquant;
  FormatRef format;  // of A and B; null: f32

  bool are_wanted() const { return rank > 0; }
  bool before_rounding() const { return method == BranchMethod::svdquant; }
  graph::TapKinds observes() const;  // statistics of the weights' inputs that are needed
};

// Looks up a method by its user-visible name. Error (usage) that lists all names.
BranchMethod branch_method(const std::string& name);
const std::vector<std::string>& branch_methods();
const std::string& name_of(BranchMethod method);

// Weights of layers that get a branch, and its rank (options.rank, or fewer if the matrix has fewer rows or columns):
// those in `formats` that only products read and that do not stay floats. Error when A or B does not divide into blocks
// of the format, or the model has branches already.
std::map<std::string, int64_t> branch_ranks(const arch::Model& model, const std::map<std::string, FormatRef>& formats,
                                            const BranchOptions& options);

struct Branch {
  arch::Weight a, b;  // [R, K], [N, R], or stacked; in the format

  // to += sign B A, with the numbers that the format holds.
  void add(run::Engine& engine, float sign, std::span<float> to) const;
};

// The branch nearest to `values`, which are laid out as the task's; `shape`: the weight's. Weighted by the task's input
// statistics as the method defines; matrices without statistics are unweighted.
Branch branch_of(run::Engine& engine, const RoundingTask& task, std::span<const float> values,
                 const graph::Shape& shape, int64_t rank, const BranchOptions& options, double damping, uint32_t seed);

}  // namespace lumen::model::compress
