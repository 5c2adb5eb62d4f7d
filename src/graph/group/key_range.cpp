// See key_range.h.
#include "graph/group/key_range.h"

#include <algorithm>

namespace lumen::graph {
namespace {

constexpr double kVeryNegative = -1e20;  // no score is close to it, so exp(masked - seen) is 0

}  // namespace

KeyRange::KeyRange(const Plan& plan, const Group& group, std::vector<int64_t> extents, ValueId score)
    : KeyRange(plan, group, std::move(extents),
               plan.graph[score].op == Op::map_ ? Spot{score, plan.graph[score].attributes.formula.outputs[0]}
                                                : Spot{score, -1}) {}

KeyRange::KeyRange(const Plan& plan, const Group& group, std::vector<int64_t> extents, Spot score)
    : plan_(plan), group_(group), extents_(std::move(extents)), score_(score) {
  if (score.index < 0) return;  // no mask
  score_ = resolve(score);
  if (node(score_).op != ScalarOp::select_) return;
  if (constant(argument(score_, 2)).value_or(0) > kVeryNegative || !collect(argument(score_, 0))) terms_.clear();
}

KeyRange::Spot KeyRange::resolve(Spot s) const {
  for (;;) {
    const ScalarNode& n = node(s);
    if (n.op != ScalarOp::input) return s;
    const ValueId operand = plan_.graph[s.value].operands[n.index];
    if (is_load(plan_, group_, operand) || plan_.graph[operand].op != Op::map_) return s;
    s = output_of(operand);
  }
}

std::optional<double> KeyRange::constant(Spot s) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant && is_float(n.type)) return n.real;
  if (n.op != ScalarOp::input) return std::nullopt;
  const ValueId operand = plan_.graph[s.value].operands[n.index];
  if (!is_load(plan_, group_, operand)) return std::nullopt;
  const Node& source = plan_.graph[follow(plan_, group_, operand).source];
  if (source.op != Op::constant_ || source.attributes.data.size() != 1) return std::nullopt;
  return source.attributes.data[0];
}

bool KeyRange::vanishes(Spot s) const {
  const ScalarNode& n = node(s);
  if (constant(s) == 0.0) return true;
  const auto arg = [&](int k) { return vanishes(argument(s, k)); };
  switch (n.op) {
    case ScalarOp::exp_: {  // of score - maximum
      const Spot difference = argument(s, 0);
      return node(difference).op == ScalarOp::sub_ && argument(difference, 0) == score_;
    }
    case ScalarOp::mul_:
      return arg(0) || arg(1);
    case ScalarOp::div_:
    case ScalarOp::neg_:
    case ScalarOp::cast_:
      return arg(0);
    case ScalarOp::add_:
    case ScalarOp::sub_:
      return arg(0) && arg(1);
    case ScalarOp::select_:
      return arg(1) && arg(2);
    default:
      return false;
  }
}

bool KeyRange::collect(Spot condition) {
  const ScalarNode& n = node(condition);
  if (n.op == ScalarOp::and_) return collect(argument(condition, 0)) && collect(argument(condition, 1));
  if (n.op != ScalarOp::le_ && n.op != ScalarOp::lt_) return false;
  const Spot left = argument(condition, 0), right = argument(condition, 1);
  if (is_float(node(left).type) || node(left).type == Scalar::boolean) return false;
  const auto l = slope(left), r = slope(right);
  if (!l || !r || std::abs(*l - *r) != 1) return false;
  terms_.push_back({n.op, left, right, *l - *r});
  return true;
}

// The increment of an integer from one key to the next; nullopt if it is not linear.
std::optional<int> KeyRange::slope(Spot s) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant) return 0;
  if (n.op == ScalarOp::input) {
    const ValueId operand = plan_.graph[s.value].operands[n.index];
    if (!is_load(plan_, group_, operand)) return std::nullopt;
    const Access a = follow_to(plan_, group_, operand, extents_);
    if (a.strides.back() == 0) return 0;
    if (plan_.graph[a.source].op != Op::iota_) return std::nullopt;
    return static_cast<int>(a.strides.back());
  }
  const auto arg = [&](int k) { return slope(argument(s, k)); };
  if (n.op == ScalarOp::add_ || n.op == ScalarOp::sub_) {
    const auto a = arg(0), b = arg(1);
    if (!a || !b) return std::nullopt;
    return n.op == ScalarOp::add_ ? *a + *b : *a - *b;
  }
  for (int k = 0; k < 3 && n.args[k] >= 0; ++k)
    if (arg(k) != 0) return std::nullopt;
  return 0;
}

KeyRange::Side KeyRange::side(Spot s) const {
  const Node& n = plan_.graph[s.value];
  Side out{n.attributes.formula, n.operands};
  out.formula.outputs = {s.index};
  out.formula = simplify_formula(out.formula);
  std::fill(out.operands.begin(), out.operands.end(), -1);
  for (const ScalarNode& x : out.formula.nodes)
    if (x.op == ScalarOp::input) out.operands[x.index] = n.operands[x.index];
  return out;
}

bool KeyRange::varies(Spot s, size_t axis) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant) return false;
  if (n.op == ScalarOp::input) {
    const ValueId operand = plan_.graph[s.value].operands[n.index];
    return !is_load(plan_, group_, operand) || follow_to(plan_, group_, operand, extents_).strides[axis] != 0;
  }
  for (int k = 0; k < 3 && n.args[k] >= 0; ++k)
    if (varies(argument(s, k), axis)) return true;
  return false;
}

bool KeyRange::varies(size_t axis) const {
  return extents_[axis] > 1 && std::any_of(terms_.begin(), terms_.end(), [&](const Term& t) {
           return varies(t.left, axis) || varies(t.right, axis);
         });
}

bool KeyRange::hides_first() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.slope < 0; });
}

bool KeyRange::same(Spot x, Spot y) const {
  if (x == y) return true;
  const ScalarNode &m = node(x), &n = node(y);
  if (m.op != n.op || m.type != n.type) return false;
  if (m.op == ScalarOp::constant) return m == n;
  if (m.op == ScalarOp::input) {
    const ValueId a = plan_.graph[x.value].operands[m.index], b = plan_.graph[y.value].operands[n.index];
    if (!is_load(plan_, group_, a) || !is_load(plan_, group_, b)) return a == b;
    const Access p = follow_to(plan_, group_, a, extents_), q = follow_to(plan_, group_, b, extents_);
    return p.source == q.source && p.offset == q.offset && p.strides == q.strides;
  }
  for (int k = 0; k < 3; ++k) {
    if ((m.args[k] < 0) != (n.args[k] < 0)) return false;
    if (m.args[k] >= 0 && !same(argument(x, k), argument(y, k))) return false;
  }
  return true;
}

bool KeyRange::reads_only(Spot s, ValueId v) const {
  const ScalarNode& n = node(s);
  if (constant(s)) return true;
  if (n.op == ScalarOp::input) return plan_.graph[s.value].operands[n.index] == v;
  for (int k = 0; k < 3 && n.args[k] >= 0; ++k)
    if (!reads_only(argument(s, k), v)) return false;
  return true;
}

std::optional<double> KeyRange::multiple_of(ValueId product) const {
  if (terms_.empty()) return std::nullopt;
  const auto is_product = [&](Spot s) {
    const ScalarNode& n = node(s);
    return n.op == ScalarOp::input && n.type == Scalar::f32 && plan_.graph[s.value].operands[n.index] == product;
  };
  const Spot shown = argument(score_, 1);
  if (is_product(shown)) return 1;
  if (node(shown).op != ScalarOp::mul_ || node(shown).type != Scalar::f32) return std::nullopt;
  for (const int k : {0, 1})
    if (const auto by = constant(argument(shown, k)); by && *by > 0 && is_product(argument(shown, 1 - k))) return by;
  return std::nullopt;
}

Plan KeyRange::without_mask() const {
  const Spot condition = argument(score_, 0);
  Plan out = plan_;
  for (const ValueId v : group_.nodes) {
    if (plan_.graph[v].op != Op::map_) continue;
    const size_t count = plan_.graph[v].attributes.formula.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const Spot here{v, static_cast<int>(n)};
      if (node(here).op != ScalarOp::select_ || !same(argument(here, 0), condition)) continue;
      ScalarNode& shown = out.graph[v].attributes.formula.nodes[n];
      shown.op = ScalarOp::cast_;  // to its own type
      shown.args[0] = shown.args[1];
      shown.args[1] = shown.args[2] = -1;
    }
  }
  return out;
}

}  // namespace lumen::graph
