// The interface of gradient rules. One rule per operator (rules.cpp), found by name; reverse.cpp calls them.
#pragma once

#include <utility>
#include <vector>

#include "graph/ir/build.h"
#include "graph/match/attend.h"

namespace lumen::graph {

class Reverse {
 public:
  explicit Reverse(Graph& g) : build(g) {}

  Builder build;
  bool active(ValueId v) const { return v < std::ssize(active_) && active_[v]; }
  void set_active(ValueId v);
  // Adds `gradient`, of v's shape, to v's gradient. Ignored when v is not active.
  void add(ValueId v, ValueId gradient);
  // The sum of all that was added; -1 if none was. Called once per value, when its users are done.
  ValueId take(ValueId v);
  // Sums the contributions so far of every value below `end`, except pieces that are joined later.
  void settle(ValueId end);

  // Sums over the axes along which a value of `shape` was broadcast to g's shape.
  ValueId reduce_to(ValueId g, const Shape& shape);
  // Drops inputs the formula does not use; returns the operands of the others, each once.
  std::vector<ValueId> used_operands(Formula* formula, const std::vector<ValueId>& operands);
  // A map of `formula` that reads only the operands it uses.
  ValueId lean_map(Formula formula, const std::vector<ValueId>& operands);

  // Forward maps that a gradient would read from memory are recomputed instead, if their own operands are in memory
  // anyway: `formula` over `operands` becomes one over the values below such maps. See recompute.cpp.
  void recompute(Formula* formula, std::vector<ValueId>* operands, const Shape& shape);
  void count_uses(ValueId begin, ValueId end);  // of the forward values begin <= v < end

 private:
  struct Uses {
    int by_maps = 0;           // maps and reduces: kernels that can compute their operands themselves
    bool by_gradient = false;  // derivatives of maps read it
    int by_others = 0;         // products, views, moves: the value must be in memory
  };
  void join_pads(std::vector<ValueId>* parts);
  void mark_read_by_gradient(ValueId v);
  ValueId below_reshapes(ValueId v) const;
  bool stored(ValueId v) const;  // in memory independent of the gradient
  bool recomputable(ValueId v);

  std::vector<bool> active_;
  std::vector<std::vector<ValueId>> added_;
  std::vector<Uses> uses_;
  std::vector<int8_t> recomputable_;  // 0 unknown, 1 yes, -1 no
};

using GradientRule = void (*)(Reverse& r, ValueId v, ValueId gradient);
GradientRule gradient_rule(Op op);

// cast.cpp: the rule of casts, with learned fields.
void cast_gradient(Reverse& r, ValueId v, ValueId gradient);
// attention.cpp: the rule of a whole attention, from the gradient of its output.
void attention_gradient(Reverse& r, const Attention& attention, ValueId d_output);
// scan.cpp: the rule of a scan, from the gradients of some of its results, by their number.
void scan_gradient(Reverse& r, ValueId v, const std::vector<std::pair<int, ValueId>>& arriving);
// windows.cpp: the gradient of the operand of windows %v from that of their result.
ValueId sum_of_windows(Reverse& r, ValueId v, ValueId gradient);
// Adds the gradient of windows' operand from their maximum or minimum %extreme; `share` is the gradient of each
// position that equals the extreme. Compares in the operand's shape, so no tensor of the windows' size is made. False,
// and no gradient is added, when the reduction is not exactly over the windows.
bool extremes_of_windows(Reverse& r, ValueId extreme, ValueId share);
// The gradient of windows where `operand`, with the axes `letters`, is a factor of a contraction with `other`, as one
// contraction: adds it to the windows' operand. False, and no gradient is added, when the windows have another form.
bool windows_gradient(Reverse& r, ValueId operand, const std::string& letters, ValueId other,
                      const std::string& of_other, ValueId gradient, const std::string& of_gradient);
// shift.cpp: whether no value in `ends` changes when the same number is added to every element of the maximum `v`, as
// in a softmax or a log-sum-exp. Its gradient is then zero by algebra and need not be computed. Only values before
// `end` count as users.
bool shift_cancels(const Graph& g, ValueId v, ValueId end, const std::vector<ValueId>& ends);

}  // namespace lumen::graph
