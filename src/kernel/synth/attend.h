// The inside of attend kernels: what an attention group says, and which keys each query can see. Knows graphs and
// loops, not machines.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernel/synth/reduce.h"

namespace lumen::synth {

// An attention group by its parts; see `attend` in graph/pass/pipeline.h.
struct Attention {
  Attention(const graph::Plan& plan, const graph::Group& group);

  // scores = contract(q, k), .., s = score; m = top of s; l = sum of exp(s - m); o = last = contract(p, v).
  graph::ValueId scores = -1, score = -1, top = -1, sum = -1, last = -1;
  graph::ValueId q = -1, k = -1, v = -1;
  std::vector<int64_t> extents;  // of the scores: row axes, then keys
  int64_t keys = 1, depth = 1, width = 1;
  std::vector<int64_t> row_extents() const { return {extents.begin(), extents.end() - 1}; }
  std::vector<int64_t> dot_space() const;   // the scores' axes and the one summed in the first dot
  std::vector<int64_t> pick_space() const;  // the scores' axes and the one the second dot brings
  Access q_access, k_access;                // over dot_space
  Access v_access, result_access;           // over pick_space; the result does not vary along keys
};

// The interval of keys a row can see, read off comparisons with the key's number in the mask:
//   score = select(c1 and c2 .., x, very negative),  ci: key <= f(row), key + W > f(row), ..
// A key outside has a probability of exactly 0 as soon as another key of its row is inside.
class KeyRange {
 public:
  KeyRange(const graph::Plan& plan, const graph::Group& group, const Attention& attention);
  // Whether every condition of the mask is such a comparison (or there is no mask): then a row whose interval holds a
  // key sees one.
  bool is_known() const { return known_; }
  bool is_bounded() const { return known_ && !terms_.empty(); }
  // First key and the one behind the last (i64), within 0 .. keys; a row that sees none has all of them. The row's axes
  // are open in `map`, a body over the scores.
  std::pair<loop::ValueId, loop::ValueId> of_row(loop::Builder& b, Body& map) const;

 private:
  struct Spot {  // node `index` of the formula of map `value`
    graph::ValueId value;
    int index;
  };
  struct Term {
    ScalarOp op;
    Spot left, right;
    int slope;  // of left - right along the keys, 1 or -1
  };
  const ScalarNode& node(Spot s) const { return plan_.graph[s.value].attributes.formula.nodes[s.index]; }
  Spot output_of(graph::ValueId map) const { return {map, plan_.graph[map].attributes.formula.outputs[0]}; }
  Spot resolve(Spot s) const;
  Spot argument(Spot s, int k) const { return resolve({s.value, node(s).args[k]}); }
  bool collect(Spot condition);
  std::optional<int> slope(Spot s) const;
  bool is_very_negative(Spot s) const;
  loop::ValueId evaluate(loop::Builder& b, Body& map, Spot s) const;

  const graph::Plan& plan_;
  const graph::Group& group_;
  const Attention& attention_;
  std::vector<Term> terms_;
  bool known_ = false;
};

// Adds up what tasks found for parts of the keys: partial results and, for each row and part, maximum and sum.
Step attend_merge(const graph::Plan& plan, const graph::Group& group, const Attention& attention,
                  const machine::Machine& target, int64_t parts);

}  // namespace lumen::synth
