// The inside of attend kernels: what an attention group says, and which keys each query can see. Knows graphs and
// loops, not machines.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/synth/reduce/reduce.h"
#include "kernel/synth/step/ceil_div.h"

namespace lumen::synth {

// Attention by tasks that compute tiles of rows each: on processors, and where blocks of lanes (attend_block.h) have no
// plan for it.
Synthesis attend_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
Synthesis attend_gradient_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

// An attention group by its parts; see `attend` in graph/fuse/plan.h.
struct Attention {
  Attention(const graph::Plan& plan, const graph::Group& group);

  // scores = contract(q, k), .., s = score; m = top of s; l = sum of exp(s - m); o = last = contract(p, v).
  graph::ValueId scores = -1, score = -1, top = -1, sum = -1, last = -1;
  graph::ValueId written = -1;  // o, or what it is rounded to
  graph::ValueId q = -1, k = -1, v = -1;
  std::vector<int64_t> extents;  // of the scores: row axes, then keys
  int64_t keys = 1, depth = 1, width = 1;
  std::vector<int64_t> row_extents() const { return {extents.begin(), extents.end() - 1}; }
  std::vector<int64_t> dot_space() const;   // the scores' axes and the one summed in the first dot
  std::vector<int64_t> pick_space() const;  // the scores' axes and the one the second dot brings
  Access q_access, k_access;                // over dot_space
  Access v_access, result_access;           // over pick_space; the result does not vary along keys

  // Keys or values that a table finds: each lies (number - its own) * stride elements from where its access says it
  // does, where `number` is what the index holds for it.
  struct Found {
    graph::ValueId index = -1;
    Access access;       // over the same space
    int64_t stride = 0;  // of the access along the keys, too
    int64_t count = 0;   // numbers are below
  };
  std::optional<Found> k_found, v_found;
  bool is_found() const { return k_found || v_found; }
  // Whether rows along axis d of the scores read the same keys and values.
  bool shares_keys(size_t d) const;

 private:
  Access key_access(const graph::Plan& plan, const graph::Group& group, graph::ValueId operand, const std::string& own,
                    const std::string& space, std::optional<Found>& found) const;
};

// The interval of keys a row can see, read off comparisons with the key's number in the mask:
//   score = select(c1 and c2 .., x, very negative),  ci: key <= f(row), key + W > f(row), ..
// A key outside has a probability of exactly 0 as soon as another key of its row is inside.
class KeyRange {
 public:
  struct Spot {  // node `index` of the formula of map `value`
    graph::ValueId value;
    int index;
    friend bool operator==(const Spot&, const Spot&) = default;
  };
  // `extents` of the scores, whose last axis are the keys.
  KeyRange(const graph::Plan& plan, const graph::Group& group, std::vector<int64_t> extents, graph::ValueId score);
  KeyRange(const graph::Plan& plan, const graph::Group& group, std::vector<int64_t> extents, Spot score);
  // Whether every condition of the mask is such a comparison (or there is no mask): then a row whose interval holds a
  // key sees one.
  bool is_bounded() const { return !terms_.empty(); }
  // First key and the one behind the last (i64), within 0 .. keys; a row that sees none has all of them. The row's axes
  // are open in `map`, a body over the scores.
  std::pair<loop::Expr, loop::Expr> of_row(loop::Builder& b, Body& map) const;
  // The same where a row that sees none has none: the interval is empty or runs backwards.
  std::pair<loop::Expr, loop::Expr> shown_to_row(loop::Builder& b, Body& map) const;
  // Whether rows see the same keys wherever they are along an axis of the scores.
  bool varies(size_t axis) const;
  // Whether any row's first (else: last) key may be hidden.
  bool hides_first() const;
  // Whether scores that are not hidden are made of `product` and constants alone.
  bool shows_only(graph::ValueId product) const { return !terms_.empty() && reads_only(argument(score_, 1), product); }
  // Where they are just `product` times a positive number: that.
  std::optional<double> multiple_of(graph::ValueId product) const;
  // The plan without the mask: what a tile computes of which every row sees every key.
  graph::Plan without_mask() const;
  // Whether a value of the scores' shape is 0 wherever the mask hides the key.
  bool vanishes(graph::ValueId v) const { return vanishes(resolve(output_of(v))); }

 private:
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
  bool vanishes(Spot s) const;
  bool varies(Spot s, size_t axis) const;
  bool same(Spot x, Spot y) const;  // numbers
  bool reads_only(Spot s, graph::ValueId v) const;
  std::optional<int> slope(Spot s) const;
  std::optional<double> constant(Spot s) const;
  loop::Expr evaluate(loop::Builder& b, Body& map, Spot s) const;

  const graph::Plan& plan_;
  const graph::Group& group_;
  std::vector<int64_t> extents_;
  Spot score_{-1, -1};
  std::vector<Term> terms_;
};

// An attention_gradient group by its parts; see `attend_gradient` in graph/fuse/plan.h.
struct AttentionGradient {
  AttentionGradient(const graph::Plan& plan, const graph::Group& group);

  struct Operand {
    graph::ValueId value = -1;
    Access access;        // over the scores' axes and its own
    bool by_key = false;  // varies along keys, otherwise along rows
    int64_t width = 1;
  };
  struct Product {
    graph::ValueId value = -1;
    int rows = -1, keys = -1;  // operands
  };
  struct Result {
    graph::ValueId value = -1;
    int source = -1;  // which of the sources
    int operand = -1;
    bool over_keys = false;  // summed over keys, otherwise over all rows
    Access access;           // over the scores' axes and its own
  };
  std::vector<int64_t> extents;  // of the scores
  std::vector<int> row_axes;     // of them
  std::vector<Operand> operands;
  std::vector<Product> products;
  std::vector<Result> results;
  std::vector<graph::ValueId> sources;  // values of the scores' shape that results read
  std::unique_ptr<KeyRange> range;      // of a mask under which all sources are 0
};

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
  static int open_axis(Body& body, size_t d, loop::Expr counter);
  static void close(Body& body, int opened);
  loop::Expr bytes(loop::Expr i, int64_t stride) { return i * (stride * 4); }
  loop::Expr down(loop::Expr x, int64_t unit) { return x - x % unit; }
  loop::Expr as_f32(loop::Expr x) { return cast(x, Scalar::f32); }
  void serial(loop::Expr from, loop::Expr to, int64_t step, const std::function<void(loop::Expr)>& body) {
    b_.loop(loop::LoopKind::serial, from, to, step, body);
  }
  loop::VType vector() const { return {Scalar::f32, lanes_}; }
  // Declares what a kernel of `attention` writes, the group's results or, in parts of the keys, what attend_merge
  // joins; bytes of the scratch this takes.
  std::vector<int64_t> declare_results(const graph::Group& group, const Attention& attention, int64_t parts);
  // What the index holds for the key that is open in `body`; what is none of the table's numbers is reported.
  loop::Expr key_in_table(Body& body, const Attention::Found& found);
  void keep_extremes(loop::Expr row, loop::Expr top, loop::Expr total);
  // Numbers at .. of a row, as many as are stored at once.
  void each_number(int64_t width, bool dense,
                   const std::function<void(loop::Expr at, int lanes, loop::Expr count)>& body);

  const graph::Graph& g_;
  StepBuilder builder_;
  loop::Builder& b_;
  int lanes_;
  int line_;  // bytes of a vector
  bool fused_;
  loop::BufferId partial_ = -1, extremes_ = -1;  // what attend_merge joins
};

// Strides of an operand over the axes `space` names by letters: `own` are the operand's.
Access access_by_letters(const graph::Plan& plan, const graph::Group& group, graph::ValueId operand,
                         const std::string& own, const std::string& space);
// The same of a result, element numbers of a dense tensor.
Access result_by_letters(const graph::Graph& g, graph::ValueId result, const std::string& own, const std::string& space,
                         const std::vector<int64_t>& extents);

}  // namespace lumen::synth
