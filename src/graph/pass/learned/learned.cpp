#include "graph/pass/learned/learned.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/match/access.h"
#include "number/facts/facts.h"
#include "number/facts/range.h"
#include "number/gradient/gradient.h"

namespace lumen::graph {
namespace {

// Rounds x to a number of the field's type: the nearest, ties to even, clamped to the largest.
int stored(Formula& f, int x, const FieldType& t) {
  const auto bounded = [&](int v, double low, double high) {
    return f.op(ScalarOp::min_, f.op(ScalarOp::max_, v, f.constant(Scalar::f32, low)), f.constant(Scalar::f32, high));
  };
  if (!t.is_float) {
    const read::Range all = read::range_of_field(t);
    return bounded(f.op(ScalarOp::rint_, x), all.low, all.high);
  }
  if (t.bits == 32 && t.mantissa_bits == 23) return x;
  const bool is_scale = t.special == FieldType::Special::scale;
  const double low = is_scale ? std::ldexp(1.0, -t.bias) : t.has_sign ? -t.max_finite() : 0;
  const int digits = f.integer(Scalar::i32, t.mantissa_bits);
  const int least = f.integer(Scalar::i32, is_scale ? -t.bias : 1 - t.bias);
  const int e = f.op(ScalarOp::max_, f.convert(ScalarOp::exponent_, Scalar::i32, x), least);
  const int grid = f.op(ScalarOp::rint_, f.op(ScalarOp::ldexp_, x, f.op(ScalarOp::sub_, digits, e)));
  return bounded(f.op(ScalarOp::ldexp_, grid, f.op(ScalarOp::sub_, e, digits)), low, t.max_finite());
}

// The largest magnitude of a code before scaling.
double largest_code(const Format& f) {
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled) return 1;
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, double(f.block - 1)}};
  const read::Range range = ranges.of(facts.scaled->value);
  const double most = std::max(std::fabs(range.low), std::fabs(range.high));
  return std::isfinite(most) && most > 0 ? most : 1;
}

}  // namespace

double step_slope(const Format& f, int64_t numbers) {
  return 1 / std::sqrt(double(numbers) * largest_code(f));
}

// stored(s) + slope (s - s), where only the first s of the difference has a gradient: bitcasts have none.
ValueId seen_scale(Builder& build, ValueId parameter, const FieldType& type, double slope) {
  Formula f;
  f.inputs = {Scalar::f32};
  const int s = f.input(0);
  const auto flat = [&](int x) {
    return f.convert(ScalarOp::bitcast_, Scalar::f32, f.convert(ScalarOp::bitcast_, Scalar::i32, x));
  };
  const int move = f.op(ScalarOp::mul_, f.constant(Scalar::f32, slope), f.op(ScalarOp::sub_, s, flat(s)));
  f.outputs = {f.op(ScalarOp::add_, flat(stored(f, s, type)), move)};
  return build.map(std::move(f), {parameter});
}

std::string Learning::name_of(const std::string& operand, const Format& f, int field) {
  const std::string first = std::ssize(f.fields) > 2 ? operand + "." + f.fields[field].name : operand;
  std::string name = first;
  for (int n = 2; !names.insert(name).second; ++n) name = fmt::format("{}.{}", first, n);
  return name;
}

ValueId Learning::parameter(Builder& build, LearnedScale scale, int64_t numbers) {
  const int64_t records = elements(scale.shape).number();
  const ValueId input = build.input(scale.name, Role::parameter, {scale.shape, {}});
  const FieldType& type = scale.format->fields[scale.field].type;
  const double slope = step_slope(*scale.format, std::max<int64_t>(1, numbers / records));
  scales.push_back(std::move(scale));
  return seen_scale(build, input, type, slope);
}

void require_learned(const Format& f, bool is_activation) {
  if (f.code_field < 0 || std::ssize(f.fields) < 2)
    throw Error(Exit::user, fmt::format("format '{}' has no scale that could be learned", f.name),
                "name a format with a field in addition to its codes, or let scales be fitted");
  if (!fake_quantize_formula(f))
    throw Error(Exit::user,
                fmt::format("scales of format '{}' cannot be learned: its code is no single formula", f.name),
                "let scales be fitted, or name another format");
  if (is_activation && tensor_scale(f) < 0)
    throw Error(Exit::user,
                fmt::format("format '{}' has more scales than one for the whole tensor: of an activation they belong "
                            "to tokens, which are others in each step, and no parameter can hold them",
                            f.name),
                "learn scales of activations in a format with one for the tensor, or let them be fitted");
}

bool is_learned_cast(const Node& node) {
  return node.op == Op::cast_ && node.type.element.format &&
         std::any_of(node.attributes.sources.begin(), node.attributes.sources.end(),
                     [](const auto& s) { return s.second == FieldSource::learned; });
}

FormatRef learned_format(const Graph& g, ValueId v) {
  while (is_view(g[v].op)) v = g[v].operands[0];
  if (g[v].op != Op::cast_ || !is_learned_cast(g[g[v].operands[0]])) return nullptr;
  return g[g[v].operands[0]].type.element.format;
}

ValueId last_source(const Graph& g, ValueId v, const std::function<bool(ValueId)>& ends,
                    const std::function<bool(ValueId)>& is_followed) {
  std::set<ValueId> seen;
  std::vector<ValueId> open = {v};
  ValueId last = -1;
  while (!open.empty()) {
    const ValueId at = open.back();
    open.pop_back();
    if (!is_followed(at) || !seen.insert(at).second) continue;
    if (ends(at))
      last = std::max(last, at);
    else
      open.insert(open.end(), g[at].operands.begin(), g[at].operands.end());
  }
  return last;
}

bool is_conversion(const Node& node) {
  if (node.op != Op::map_ || node.operands.size() != 1) return false;
  const Formula& f = node.attributes.formula;
  return f.nodes.size() == 2 && f.nodes[f.outputs[0]].op == ScalarOp::cast_;
}

}  // namespace lumen::graph
