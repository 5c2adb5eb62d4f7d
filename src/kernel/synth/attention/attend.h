// Common parts of attend kernels: which keys each query can see, and the code that all of them emit.
#pragma once

#include <utility>
#include <vector>

#include "base/round_up.h"
#include "graph/group/attention.h"
#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

using Attention = graph::AttentionParts;
using AttentionGradient = graph::AttentionGradientParts;
using graph::KeyRange;

// Attention by tasks that compute tiles of rows each: on processors, and where blocks of lanes (attend_block.h) have no
// plan for it.
// `factor`: the type that a matrix unit may multiply; f32: nothing is rounded. `invariant`: a row's sums do not depend
// on the number of rows (Options::invariant).
Synthesis attend_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                          Scalar factor, bool invariant = false);
Synthesis attend_gradient_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   Scalar factor);

// The first key that a row sees and the end of those it sees (i64), within 0 .. keys; a row that sees none gets all of
// them. The row's axes are open in `map`, a body over the scores.
std::pair<Expr, Expr> keys_of_row(Builder& b, Body& map, const graph::KeyRange& range);
// The same, but for a row that sees none the interval is empty or runs backwards.
std::pair<Expr, Expr> keys_shown_to_row(Builder& b, Body& map, const graph::KeyRange& range);

// Merges the results of tasks for parts of the keys: partial sums and, for each row and part, maximum and sum.
Step attend_merge(const graph::Plan& plan, const Attention& attention, const machine::Machine& target, int64_t parts);

// The base of the classes that write attention kernels.
class AttendWriter {
 protected:
  AttendWriter(const graph::Plan& plan, const machine::Machine& target)
      : g_(plan.graph),
        builder_(plan.graph),
        b_(builder_.b),
        lanes_(target.f32_lanes()),
        line_(target.f32_lanes() * 4),
        fused_(target.fma) {}

  // The collapsed axis that is the space's axis d; -1 when it has extent 1.
  static int axis_of(const Body& body, size_t d);
  static int open_axis(Body& body, size_t d, Expr counter);
  static void close(Body& body, int opened);
  Expr bytes(Expr i, int64_t stride) { return i * (stride * 4); }
  Expr down(Expr x, int64_t unit) { return x - x % unit; }
  Expr as_f32(Expr x) { return cast(x, Scalar::f32); }
  void serial(Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body) {
    b_.loop(LoopKind::serial, from, to, step, body);
  }
  // x, with zero in lanes that do not exist at the position of `body`.
  Expr existing(Body& body, Expr x);
  VType vector() const { return {Scalar::f32, lanes_}; }
  // Declares the outputs of a kernel of `attention`: the group's results or, for parts of the keys, the inputs of
  // attend_merge; returns bytes of their scratch.
  std::vector<int64_t> declare_results(const graph::Group& group, const Attention& attention, int64_t parts);
  // The index of the key that is open in `body`; an index outside the table is reported.
  Expr key_in_table(Body& body, const Attention::Found& found);
  void keep_extremes(Expr row, Expr top, Expr total);
  void keep_no_keys(Expr row);  // of a part in which the row sees none
  // Visits the numbers of a row, as many at a time as are stored together.
  void each_number(int64_t width, bool dense, const std::function<void(Expr at, int lanes, Expr count)>& body);

  const graph::Graph& g_;
  StepBuilder builder_;
  Builder& b_;
  int lanes_;
  int line_;  // bytes of a vector
  bool fused_;
  BufferId partial_ = -1, extremes_ = -1;  // inputs of attend_merge
};

}  // namespace lumen::synth
