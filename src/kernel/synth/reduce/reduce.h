// The inside of reduce kernels: accumulators with a fixed order, and the two ways to walk the axes.
//
// May include: base, graph/group, kernel/machine, kernel/synth/body, kernel/synth/map, kernel/synth/step.
// Offers: extreme_parts.h.
#pragma once

#include <vector>

#include "graph/group/reduce.h"
#include "kernel/synth/body/nest.h"

namespace lumen::synth {

Synthesis synthesize_reduce(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

using graph::ReduceFacts;

// Partial results, one vector per reduce and way. The order of combination is fixed: lanes, then ways in pairs, then
// halves.
class Accumulators {
 public:
  Accumulators(Builder& b, const graph::Graph& g, std::vector<graph::ValueId> reduces, int lanes, int ways);
  void reset(int reduce);
  // Adds lanes of a value (as many as `lanes`, or fewer); those from `count` on are ignored.
  void add(int reduce, int way, Expr x, Expr count);
  void put(int way, Expr x);
  // way += x * y, rounded once where the machine has it.
  void multiply_add(int way, Expr x, Expr y, bool fused);
  Expr get(int reduce, int way);
  Expr total(int reduce);  // all ways and lanes, a scalar of the accumulator's type
  int size() const { return reduces_.size(); }
  Scalar type(int reduce) const;
  ScalarOp op(int reduce) const;

 private:
  Expr identity(int reduce, int lanes);
  Builder& b_;
  const graph::Graph& graph_;
  std::vector<graph::ValueId> reduces_;
  int lanes_, ways_;
  std::vector<BufferId> buffers_;
};

Scalar accumulator_type(Scalar s);  // f32 for f16 and bf16

constexpr int64_t kFewElements = 65536;  // of all rows: with no more, waves of a block share each

// One scratch buffer per reduce holds [parts][elements of R] partial results.
struct Split {
  int64_t parts = 1, part = 0;  // `part`: length along the axis that is cut
};

// The last collapsed axis is reduced: rows, passes over each. With parts > 1 only partial results are written.
Step reduce_rows(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                 const machine::Machine& target, Split split);
// The last collapsed axis is kept: columns in vectors, walked along the reduced axes.
Step reduce_columns(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                    const machine::Machine& target, Split split);
// Adds up the parts in order and computes what depends on the totals.
Step reduce_parts(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                  const machine::Machine& target, Split split);

// Declares params: inputs, results of the requested shapes, scratch when split.
void declare_reduce(StepBuilder& builder, const graph::Group& group, const ReduceFacts& facts, Split split,
                    bool writes_parts);

// Stores an accumulator value into the part's scratch at the element number of the reduce.
void store_part(StepBuilder& builder, Body& body, const ReduceFacts& facts, int reduce, Scalar type, Expr part,
                int64_t parts, Expr x);
}  // namespace lumen::synth
