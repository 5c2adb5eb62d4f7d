// The keys that an attention's mask lets a query see, derived from the group's formulas. Proved by
// tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "graph/group/access.h"

namespace lumen::graph {

// The interval of keys a row can see, derived from comparisons with the key's number in the mask:
//   score = select(c1 and c2 .., x, very negative),  ci: key <= f(row), key + W > f(row), ..
// A key outside has a probability of exactly 0 as soon as another key of its row is inside.
class KeyRange {
 public:
  struct Spot {  // node `index` of the formula of map `value`
    ValueId value;
    int index;
    friend bool operator==(const Spot&, const Spot&) = default;
  };
  struct Term {  // left <= right, or left < right: of integers
    ScalarOp op;
    Spot left, right;
    int slope;  // of left - right along the keys, 1 or -1
  };
  // `extents` of the scores, whose last axis is the keys.
  KeyRange(const Plan& plan, const Group& group, std::vector<int64_t> extents, ValueId score);
  KeyRange(const Plan& plan, const Group& group, std::vector<int64_t> extents, Spot score);
  // Whether every condition of the mask is such a comparison (or there is no mask): then a row whose interval holds a
  // key sees one.
  bool is_bounded() const { return !terms_.empty(); }
  const std::vector<Term>& terms() const { return terms_; }
  int64_t keys() const { return extents_.back(); }
  // A side of a term as a formula of its own, and the values of its inputs; -1: an input it does not read.
  struct Side {
    Formula formula;
    std::vector<ValueId> operands;
  };
  Side side(Spot s) const;
  // Whether rows see different keys along an axis of the scores.
  bool varies(size_t axis) const;
  // Whether any row's first (else: last) key may be hidden.
  bool hides_first() const;
  // Whether scores that are not hidden depend only on `product` and constants.
  bool shows_only(ValueId product) const { return !terms_.empty() && reads_only(argument(score_, 1), product); }
  // The factor if they are just `product` times a positive number.
  std::optional<double> multiple_of(ValueId product) const;
  // The plan without the mask: the computation of a tile in which every row sees every key.
  Plan without_mask() const;
  // Whether a value of the scores' shape is 0 wherever the mask hides the key.
  bool vanishes(ValueId v) const { return vanishes(resolve(output_of(v))); }

 private:
  const ScalarNode& node(Spot s) const { return plan_.graph[s.value].attributes.formula.nodes[s.index]; }
  Spot output_of(ValueId map) const { return {map, plan_.graph[map].attributes.formula.outputs[0]}; }
  Spot resolve(Spot s) const;
  Spot argument(Spot s, int k) const { return resolve({s.value, node(s).args[k]}); }
  bool collect(Spot condition);
  bool vanishes(Spot s) const;
  bool varies(Spot s, size_t axis) const;
  bool same(Spot x, Spot y) const;  // numbers
  bool reads_only(Spot s, ValueId v) const;
  std::optional<int> slope(Spot s) const;
  std::optional<double> constant(Spot s) const;

  const Plan& plan_;
  const Group& group_;
  std::vector<int64_t> extents_;
  Spot score_{-1, -1};
  std::vector<Term> terms_;
};

}  // namespace lumen::graph
