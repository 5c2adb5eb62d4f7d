// What a gradient rule sees and does. One rule per operator (rules.cpp), found by name; reverse.cpp drives them.
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
  // Adds `gradient`, of v's shape, to what is known of v's gradient. Ignored when v is not active.
  void add(ValueId v, ValueId gradient);
  // The sum of all that was added; -1 when nothing was. Asked once per value, when its users are done.
  ValueId take(ValueId v);
  // Adds up what is known so far of the gradient of every value below `end`, except pieces that are joined later.
  void settle(ValueId end);

  // Sums over the axes along which a value of `shape` was stretched to g's shape.
  ValueId reduce_to(ValueId g, const Shape& shape);
  // Drops the inputs the formula does not use; returns the operands of the others, each once.
  std::vector<ValueId> used_operands(Formula* formula, const std::vector<ValueId>& operands);
  // A map of `formula` that reads only what it uses.
  ValueId lean_map(Formula formula, const std::vector<ValueId>& operands);

  // Forward maps that a gradient would have to find in memory are computed again instead, where what they read is in
  // memory anyway: `formula` over `operands` becomes one over the values below such maps. See recompute.cpp.
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
  bool stored(ValueId v) const;  // in memory whatever the gradient needs
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
// What the operand of windows gets of their maximum or minimum %extreme, `share` being what each place that holds it
// gets: compared where the elements are, no tensor of the windows' size is made. False, and nothing is added, when
// what is reduced is more or less than windows.
bool extremes_of_windows(Reverse& r, ValueId extreme, ValueId share);
// The gradient of a window where `operand`, with the axes `letters`, is a factor of a contraction beside `other`, as
// one contraction: adds it to what the windows read. False, and nothing is added, when it is no such window.
bool windows_gradient(Reverse& r, ValueId operand, const std::string& letters, ValueId other,
                      const std::string& of_other, ValueId gradient, const std::string& of_gradient);
// shift.cpp: whether no value in `ends` changes when every element of the maximum `v` grows by the same amount, as in a
// softmax or a log-sum-exp. Its gradient is then zero by algebra and need not be computed. Only values before `end`
// count as users.
bool shift_cancels(const Graph& g, ValueId v, ValueId end, const std::vector<ValueId>& ends);

}  // namespace lumen::graph
