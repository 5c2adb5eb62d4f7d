// What a gradient rule sees and does. One rule per operator (rules.cpp), found by name; reverse.cpp drives them.
#pragma once

#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

class Reverse {
 public:
  explicit Reverse(Graph& g) : build(g) {}

  Builder build;
  bool active(ValueId v) const { return v < static_cast<ValueId>(active_.size()) && active_[v]; }
  void set_active(ValueId v);
  // Adds `gradient`, of v's shape, to what is known of v's gradient. Ignored when v is not active.
  void add(ValueId v, ValueId gradient);
  // The sum of all that was added; -1 when nothing was. Asked once per value, when its users are done.
  ValueId take(ValueId v);

  // Sums over the axes along which a value of `shape` was stretched to g's shape.
  ValueId reduce_to(ValueId g, const Shape& shape);
  // A map of `formula` that reads only the operands the formula uses; the others' inputs go.
  ValueId lean_map(Formula formula, const std::vector<ValueId>& operands);

 private:
  std::vector<bool> active_;
  std::vector<std::vector<ValueId>> added_;
};

using GradientRule = void (*)(Reverse& r, ValueId v, ValueId gradient);
GradientRule gradient_rule(Op op);

// cast.cpp: the rule of casts, with learned fields.
void cast_gradient(Reverse& r, ValueId v, ValueId gradient);
// shift.cpp: whether no value in `ends` changes when every element of the maximum `v` grows by the same amount, as in a softmax or a
// log-sum-exp. Its gradient is then zero by algebra and need not be computed. Only values before `end` count as users.
bool shift_cancels(const Graph& g, ValueId v, ValueId end, const std::vector<ValueId>& ends);

}  // namespace lumen::graph
