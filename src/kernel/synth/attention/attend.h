// The inside of attend kernels: which keys each query can see, and what all of them write alike.
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
// `factor`: what a matrix unit may multiply; f32: nothing is rounded.
Synthesis attend_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                          Scalar factor);
Synthesis attend_gradient_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   Scalar factor);

// First key that a row sees and the one behind the last (i64), within 0 .. keys; a row that sees none has all of them.
// The row's axes are open in `map`, a body over the scores.
std::pair<Expr, Expr> keys_of_row(Builder& b, Body& map, const graph::KeyRange& range);
// The same where a row that sees none has none: the interval is empty or runs backwards.
std::pair<Expr, Expr> keys_shown_to_row(Builder& b, Body& map, const graph::KeyRange& range);

// Adds up what tasks found for parts of the keys: partial results and, for each row and part, maximum and sum.
Step attend_merge(const graph::Plan& plan, const Attention& attention, const machine::Machine& target, int64_t parts);

// What the kernels of attention are written with.
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
  // Zero in lanes that do not exist where `body` stands.
  Expr existing(Body& body, Expr x);
  VType vector() const { return {Scalar::f32, lanes_}; }
  // Declares what a kernel of `attention` writes, the group's results or, in parts of the keys, what attend_merge
  // joins; bytes of the scratch this takes.
  std::vector<int64_t> declare_results(const graph::Group& group, const Attention& attention, int64_t parts);
  // What the index holds for the key that is open in `body`; what is none of the table's numbers is reported.
  Expr key_in_table(Body& body, const Attention::Found& found);
  void keep_extremes(Expr row, Expr top, Expr total);
  // Numbers at .. of a row, as many as are stored at once.
  void each_number(int64_t width, bool dense, const std::function<void(Expr at, int lanes, Expr count)>& body);

  const graph::Graph& g_;
  StepBuilder builder_;
  Builder& b_;
  int lanes_;
  int line_;  // bytes of a vector
  bool fused_;
  BufferId partial_ = -1, extremes_ = -1;  // what attend_merge joins
};

}  // namespace lumen::synth
