// What an attention group says: see attend.h. Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "graph/match/access.h"
#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;
using loop::Expr;

namespace {

constexpr double kVeryNegative = -1e20;  // no score comes near it, so exp(masked - seen) is 0

char only_letter(const std::string& of, const std::string& absent_from) {
  char found = 0;
  for (const char c : of) {
    if (absent_from.find(c) != std::string::npos) continue;
    LUMEN_CHECK(found == 0, "attend over two axes");
    found = c;
  }
  LUMEN_CHECK(found != 0, "attend without a summed axis");
  return found;
}

}  // namespace

Access access_by_letters(const graph::Plan& plan, const graph::Group& group, graph::ValueId operand,
                         const std::string& own, const std::string& space) {
  const Access a = follow(plan, group, operand);
  Access out{a.source, a.offset, {}};
  for (const char c : space) {
    const size_t at = own.find(c);
    out.strides.push_back(at == std::string::npos ? 0 : a.strides[at]);
  }
  return out;
}

Access result_by_letters(const graph::Graph& g, graph::ValueId result, const std::string& own, const std::string& space,
                         const std::vector<int64_t>& extents) {
  Access out{result, 0, {}};
  const std::vector<int64_t> dense = dense_strides_of(extents_of(g[result].type.shape));
  for (size_t d = 0; d < space.size(); ++d) {
    const size_t at = own.find(space[d]);
    out.strides.push_back(at == std::string::npos || extents[d] == 1 ? 0 : dense[at]);
  }
  return out;
}

Attention::Attention(const graph::Plan& plan, const graph::Group& group) {
  const graph::Graph& g = plan.graph;
  scores = group.root;
  for (const graph::ValueId node : group.nodes) {
    if (g[node].op == Op::contract_ && node != scores) last = node;
    if (g[node].op == Op::reduce_) (g[node].attributes.reduction == graph::Reduction::max ? top : sum) = node;
  }
  LUMEN_CHECK(top >= 0 && sum >= 0 && last >= 0, "attend needs a maximum, a sum and a second dot");
  written = last;
  for (const graph::ValueId node : group.nodes)
    if (g[node].op == Op::map_ && g[node].operands == std::vector<graph::ValueId>{last}) written = node;
  score = g[top].operands[0];
  extents = extents_of(g[scores].type.shape);
  keys = extents.back();
  const auto& dot = g[scores].attributes.indices;
  const auto& pick = g[last].attributes.indices;
  // Keys vary along the scores' last axis, queries do not.
  const int key_side = dot[1].find(dot[2].back()) != std::string::npos ? 1 : 0;
  k = g[scores].operands[key_side];
  q = g[scores].operands[1 - key_side];
  v = g[last].operands[1];
  const char inner = only_letter(dot[0], dot[2]), outer = only_letter(pick[1], pick[0]);
  const auto extent = [&](graph::ValueId value, const std::string& letters, char c) {
    return extents_of(g[value].type.shape)[letters.find(c)];
  };
  depth = extent(q, dot[1 - key_side], inner);
  width = extent(v, pick[1], outer);
  q_access = access_by_letters(plan, group, q, dot[1 - key_side], dot[2] + inner);
  k_access = key_access(plan, group, k, dot[key_side], dot[2] + inner, k_found);
  v_access = key_access(plan, group, v, pick[1], pick[0] + outer, v_found);
  result_access = result_by_letters(g, written, pick[2], pick[0] + outer, pick_space());
}

Access Attention::key_access(const graph::Plan& plan, const graph::Group& group, graph::ValueId operand,
                             const std::string& own, const std::string& space, std::optional<Found>& found) const {
  const auto gathered = graph::gathered_access(plan.graph, operand);
  const bool inside =
      gathered && std::find(group.nodes.begin(), group.nodes.end(), gathered->gather) != group.nodes.end();
  if (!inside) return access_by_letters(plan, group, operand, own, space);
  const auto by_letters = [&](const graph::Access& a) {
    Access out{a.source, a.offset, {}};
    for (const char c : space) {
      const size_t at = own.find(c);
      out.strides.push_back(at == std::string::npos ? 0 : a.strides[at]);
    }
    return out;
  };
  const size_t key_axis = extents.size() - 1;
  Access rows = by_letters(gathered->rows);
  LUMEN_CHECK(rows.strides[key_axis] == 0, "keys lie along a gathered row");
  found =
      Found{plan.graph[gathered->gather].operands[1], by_letters(gathered->index), gathered->stride, gathered->count};
  rows.strides[key_axis] = extents[key_axis] == 1 ? 0 : gathered->stride;
  return rows;
}

bool Attention::shares_keys(size_t d) const {
  const auto same = [&](const Access& a, const std::optional<Found>& found) {
    return a.strides[d] == 0 && (!found || found->access.strides[d] == 0);
  };
  return same(k_access, k_found) && same(v_access, v_found);
}

std::vector<int64_t> Attention::dot_space() const {
  std::vector<int64_t> space = extents;
  space.push_back(depth);
  return space;
}

std::vector<int64_t> Attention::pick_space() const {
  std::vector<int64_t> space = extents;
  space.push_back(width);
  return space;
}

KeyRange::KeyRange(const graph::Plan& plan, const graph::Group& group, std::vector<int64_t> extents,
                   graph::ValueId score)
    : KeyRange(plan, group, std::move(extents),
               plan.graph[score].op == Op::map_ ? Spot{score, plan.graph[score].attributes.formula.outputs[0]}
                                                : Spot{score, -1}) {}

KeyRange::KeyRange(const graph::Plan& plan, const graph::Group& group, std::vector<int64_t> extents, Spot score)
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
    const graph::ValueId operand = plan_.graph[s.value].operands[n.index];
    if (is_load(plan_, group_, operand) || plan_.graph[operand].op != Op::map_) return s;
    s = output_of(operand);
  }
}

std::optional<double> KeyRange::constant(Spot s) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant && is_float(n.type)) return n.real;
  if (n.op != ScalarOp::input) return std::nullopt;
  const graph::ValueId operand = plan_.graph[s.value].operands[n.index];
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

// By how much an integer grows from one key to the next; nothing when it is no straight line.
std::optional<int> KeyRange::slope(Spot s) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant) return 0;
  if (n.op == ScalarOp::input) {
    const graph::ValueId operand = plan_.graph[s.value].operands[n.index];
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

// At key 0.
Expr KeyRange::evaluate(loop::Builder& b, Body& map, Spot s) const {
  const Node& n = plan_.graph[s.value];
  Formula f = n.attributes.formula;
  f.outputs = {s.index};
  f = simplify_formula(f);
  std::vector<bool> used(f.inputs.size(), false);
  for (const ScalarNode& x : f.nodes)
    if (x.op == ScalarOp::input) used[x.index] = true;
  std::vector<Expr> inputs;
  for (size_t i = 0; i < f.inputs.size(); ++i) {
    const loop::VType type{f.inputs[i], 1};
    inputs.push_back(used[i] ? map.value(n.operands[i]) : is_float(type.scalar) ? b.real(0, type) : b.integer(0, type));
  }
  return cast(b.apply(f, inputs)[0], Scalar::i64);
}

bool KeyRange::varies(Spot s, size_t axis) const {
  const ScalarNode& n = node(s);
  if (n.op == ScalarOp::constant) return false;
  if (n.op == ScalarOp::input) {
    const graph::ValueId operand = plan_.graph[s.value].operands[n.index];
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
    const graph::ValueId a = plan_.graph[x.value].operands[m.index], b = plan_.graph[y.value].operands[n.index];
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

bool KeyRange::reads_only(Spot s, graph::ValueId v) const {
  const ScalarNode& n = node(s);
  if (constant(s)) return true;
  if (n.op == ScalarOp::input) return plan_.graph[s.value].operands[n.index] == v;
  for (int k = 0; k < 3 && n.args[k] >= 0; ++k)
    if (!reads_only(argument(s, k), v)) return false;
  return true;
}

std::optional<double> KeyRange::multiple_of(graph::ValueId product) const {
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

graph::Plan KeyRange::without_mask() const {
  const Spot condition = argument(score_, 0);
  graph::Plan out = plan_;
  for (const graph::ValueId v : group_.nodes) {
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

std::pair<Expr, Expr> KeyRange::of_row(loop::Builder& b, Body& map) const {
  const auto [first, end] = shown_to_row(b, map);
  if (terms_.empty()) return {first, end};
  const Expr sees = first < end;
  return {select(sees, first, b.i64(0)), select(sees, end, b.i64(extents_.back()))};
}

std::pair<Expr, Expr> KeyRange::shown_to_row(loop::Builder& b, Body& map) const {
  const Expr none = b.i64(0), all = b.i64(extents_.back());
  Expr first = none, end = all;
  map.open_lanes(none, 1, {});
  for (const Term& t : terms_) {
    // left - right = base + slope * key  against 0
    const Expr base = evaluate(b, map, t.left) - evaluate(b, map, t.right);
    const Expr crossing = t.slope > 0 ? none - base : base;  // the key where it is 0
    const bool with = t.op == ScalarOp::le_;
    if (t.slope > 0) {
      end = min(end, with ? crossing + 1 : crossing);
    } else {
      first = max(first, with ? crossing : crossing + 1);
    }
  }
  map.close();
  return {first, end};
}

}  // namespace lumen::synth
