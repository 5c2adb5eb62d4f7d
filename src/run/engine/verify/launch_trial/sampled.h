// Single elements of a group's values, computed from its operands element by element in double precision, each with an
// error bound for correct kernels. Proved by tests/run/engine/verify/launch_trial/sampled_test.cpp: against the graph's
// evaluator.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/fuse/plan.h"
#include "run/engine/verify/launch_trial/bounded.h"
#include "run/engine/verify/launch_trial/operands.h"

namespace lumen::run {

constexpr int kMostAxes = 12;
struct Index {
  int rank = 0;
  std::array<int64_t, kMostAxes> at{};
};

// Roundings that kernels may add to the graph.
struct KernelFreedom {
  // Dequantized numbers are rounded to this type before products; nullopt: they are not.
  std::optional<Scalar> decoded;
  Scalar products = Scalar::f32;  // kernels round computed factors to this type
  bool dynamic = false;           // .. or to 8 bits, if the other factor is stored in a format
  bool short_sums = false;        // sums of products keep fewer digits than f32 (MatrixRow::short_sums)
};

class Sampled {
 public:
  Sampled(const graph::Graph& g, const graph::Group& group, const Operands& operands, const KernelFreedom& freedom);

  // Stored formats count as their decoded values. Throws CannotTry: for operators without kernels, and if an element
  // takes more than some seconds.
  Bounded element(graph::ValueId v, int64_t flat);
  int64_t work() const { return work_; }  // elements computed so far

  // Elements to compare: the first, the last, ends of axes, positions that are written.
  std::vector<int64_t> places(graph::ValueId v, int64_t most);

 private:
  Bounded at(graph::ValueId v, const Index& i);
  Bounded computed(graph::ValueId v, const Index& i);
  Bounded map(const graph::Node& n, const Index& i);
  Bounded contract(const graph::Node& n, const Index& i);
  Bounded contract_gather(const graph::Node& n, const Index& i);
  Bounded contract_scatter(const graph::Node& n, const Index& i);
  Bounded reduce(const graph::Node& n, const Index& i);
  Bounded gather(const graph::Node& n, const Index& i);
  Bounded scatter_add(const graph::Node& n, const Index& i);
  Bounded concat(const graph::Node& n, const Index& i);
  Bounded pad(const graph::Node& n, const Index& i);
  Bounded windows(const graph::Node& n, const Index& i);
  Bounded update(const graph::Node& n, const Index& i);
  Bounded cast(graph::ValueId v, const Index& i);
  struct Square {
    int64_t row = 0, rows = 0, column = 0, columns = 0;
  };
  std::vector<Bounded> encoded_square(const graph::Node& n, const Square& square);
  int64_t whole(graph::ValueId v, const Index& i);
  // Computes the start of a part of an update; false: the part is skipped.
  bool part_begins(const graph::Node& n, int64_t part, Index* begin);

  // Terms of a sum of products.
  struct Terms {
    double sum = 0, error = 0, sizes = 0, left = 0, right = 0;  // left, right: largest factors
    double left_sizes = 0, right_sizes = 0;
    int64_t count = 0;
    bool exact = true;
  };
  Bounded factor(graph::ValueId v, const Index& i);
  void add(const Bounded& a, const Bounded& b, Terms* terms) const;
  Bounded total(const graph::Node& n, const Terms& terms) const;
  void spend(int64_t work);

  const graph::Graph& g_;
  const graph::Group& group_;
  const Operands& operands_;
  KernelFreedom freedom_;
  std::vector<bool> decodes_, is_load_, is_inside_;  // by value
  std::unordered_map<int64_t, Bounded> known_;       // for sums and extremes
  std::unordered_map<int64_t, std::vector<Bounded>> squares_;
  int64_t work_ = 0;
};

Index index_of(const graph::Type& type, int64_t flat);
int64_t flat_of(const graph::Type& type, const Index& i);

}  // namespace lumen::run
