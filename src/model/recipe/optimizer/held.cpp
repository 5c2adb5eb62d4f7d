#include "model/recipe/optimizer/held.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"
#include "graph/pass/at_random.h"
#include "number/facts/facts.h"

namespace lumen::model::recipe {

using graph::Builder;
using graph::Graph;
using graph::ValueId;

namespace {

constexpr const char* kExact = "exact";
constexpr const char* kNone = "none";

graph::Element element_of(const std::string& what, const std::string& name, const FormatLibrary& formats) {
  const FormatRef format = formats.get(name);
  if (const auto scalar = plain_scalar(*format)) return {*scalar, nullptr};
  if (!format->encodes())
    throw Error(Exit::user, fmt::format("{} '{}': the format can only be decoded", what, name),
                "name one with an encoder; `lumen format list` shows them");
  return {Scalar::f32, format};
}

// A format of plain 16-bit integers: the lower half of an f32.
graph::Element whole_numbers(const FormatLibrary& formats) {
  for (const FormatRef& f : formats.all()) {
    if (f->block != 1 || f->fields.size() != 1 || !f->fields[0].type.is_signed) continue;
    const FormatFacts facts = facts_of(*f);
    if (f->fields[0].type.bits == 16 && f->encodes() && facts.scaled && !facts.scaled->scale && !facts.scaled->offset)
      return {Scalar::f32, f};
  }
  throw user_error("param_compensation 'exact': the library has no format of plain 16-bit integers");
}

bool divides(const graph::Element& element, const arch::Parameter& p) {
  return !element.format || p.shape.back().number() % element.format->block == 0;
}

}  // namespace

HeldIn held_in(const HeldSettings& s, const FormatLibrary& formats) {
  HeldIn out;
  out.element = element_of("param_type", s.type, formats);
  const bool compensates = s.compensation != kNone && !s.compensation.empty();
  if (out.is_plain()) {
    if (compensates)
      throw Error(Exit::usage, fmt::format("param_compensation '{}': parameters in f32 lose nothing", s.compensation),
                  "--param-type names their type between steps");
    return out;
  }
  out.is_random = s.rounding == "stochastic" && !compensates;
  if (out.is_random)
    graph::require_random(*formats.get(s.type),
                          "param_compensation keeps the residual of rounding to nearest; param_rounding = \"nearest\" "
                          "without it loses updates that are smaller than half a step of the format");
  out.is_exact = s.compensation == kExact;
  if (out.is_exact && out.element.scalar != Scalar::bf16)
    throw Error(Exit::usage,
                fmt::format("param_compensation 'exact' is for bf16, the upper half of an f32, not '{}'", s.type),
                "name a format for the residual, e.g. bf16");
  if (compensates)
    out.rest = out.is_exact ? whole_numbers(formats) : element_of("param_compensation", s.compensation, formats);
  return out;
}

bool HeldIn::holds(const arch::Parameter& p) const {
  if (is_plain() || p.shape.size() < 2 || p.frozen) return false;
  return !is_about_weights(p) && divides(element, p);
}

graph::Element HeldIn::rest_of(const arch::Parameter& p) const {
  LUMEN_CHECK(rest && holds(p));
  return divides(*rest, p) ? *rest : graph::Element{};
}

bool Holding::has(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Holding holding_of(const std::vector<arch::Parameter>& parameters, const HeldIn& in) {
  Holding held{in.element, {}};
  if (in.is_plain()) return held;
  for (const arch::Parameter& p : parameters)
    if (in.holds(p)) held.names.push_back(p.name);
  if (held.names.empty() && in.element.format)
    throw Error(Exit::user,
                fmt::format("no parameter can be held in '{}', whose blocks have {} elements", in.element.format->name,
                            in.element.format->block),
                "name a format whose blocks divide rows of matrices");
  return held;
}

Graph hold(Graph g, const Holding& held) {
  std::vector<ValueId> inputs;
  for (const std::string& name : held.names)
    if (const ValueId v = g.find_input(name); v >= 0) inputs.push_back(v);
  const ValueId shift = inputs.size();
  if (shift == 0) return g;
  Graph out = g;
  out.nodes.clear();
  for (const ValueId v : inputs) {
    graph::Node node = g[v];
    node.type.element = held.type;
    out.nodes.push_back(std::move(node));
  }
  for (graph::Node& node : g.nodes) {
    for (ValueId& operand : node.operands) operand += shift;
    out.nodes.push_back(std::move(node));
  }
  for (ValueId& result : out.results) result += shift;
  for (ValueId i = 0; i < shift; ++i) {
    const ValueId was = inputs[i] + shift;
    graph::Node cast;
    cast.op = graph::Op::cast_;
    cast.type = out[was].type;
    cast.operands = {i};
    cast.label = out[was].attributes.name;
    out[was] = std::move(cast);
  }
  return out;
}

ValueId held_value(const Graph& g, ValueId input, const Holding& held) {
  if (!held.has(g[input].attributes.name)) return input;
  for (ValueId v = input + 1; v < static_cast<ValueId>(g.nodes.size()); ++v)
    if (g[v].op == graph::Op::cast_ && g[v].operands[0] == input && g[v].label == g[input].attributes.name) return v;
  LUMEN_CHECK(false, "{} is not held", g[input].attributes.name);
  return -1;
}

ValueId round_mantissa(Builder& build, ValueId value, int bits, ValueId seed, uint32_t salt) {
  const ValueId random = build.random(seed, salt, build.type(value).shape);
  // Adds a random number to the bits that are dropped, then truncates them.
  const int gone = 23 - bits;
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int number = f.convert(ScalarOp::bitcast_, Scalar::u32, f.input(0));
  const int low = f.convert(ScalarOp::cast_, Scalar::u32,
                            f.op(ScalarOp::mul_, f.input(1), f.constant(Scalar::f32, std::ldexp(1.0, gone))));
  const int sum = f.op(ScalarOp::add_, number, low);
  const int exponent = f.integer(Scalar::u32, 0x7f800000);
  const int own = f.op(ScalarOp::and_, number, exponent);
  const int is_special = f.op(ScalarOp::eq_, own, exponent);
  const int chosen = f.op(ScalarOp::select_, is_special, number, sum);
  const int cut = f.op(ScalarOp::and_, chosen, f.integer(Scalar::u32, ~((int64_t{1} << gone) - 1) & 0xffffffff));
  f.outputs = {f.convert(ScalarOp::bitcast_, Scalar::f32, cut)};
  return build.map(std::move(f), {value, random});
}

ValueId round_stochastically(Builder& build, ValueId value, ValueId seed, uint32_t salt) {
  constexpr int kBits = 7;  // of bf16, the upper half of f32
  return build.cast(round_mantissa(build, value, kBits, seed, salt), {Scalar::bf16, nullptr});
}

ValueId hold_at_random(Builder& build, ValueId value, const graph::Element& as, ValueId seed, uint32_t salt) {
  if (as.scalar == Scalar::bf16) return round_stochastically(build, value, seed, salt);
  const ValueId random = build.random(seed, salt, build.type(value).shape);
  if (as.format) return graph::encode_at_random(build, value, as.format, random);
  LUMEN_CHECK(as.scalar == Scalar::f16);
  // Rounds to a step of f16; its subnormals have the step of the smallest exponent.
  constexpr int kBits = 10, kSmallest = -14;
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int exponent =
      f.op(ScalarOp::max_, f.convert(ScalarOp::exponent_, Scalar::i32, f.input(0)), f.integer(Scalar::i32, kSmallest));
  const int down = f.op(ScalarOp::sub_, f.integer(Scalar::i32, kBits), exponent);
  const int up = f.op(ScalarOp::sub_, exponent, f.integer(Scalar::i32, kBits));
  const int steps = f.op(ScalarOp::ldexp_, f.input(0), down);
  const int whole = f.op(ScalarOp::floor_, f.op(ScalarOp::add_, steps, f.input(1)));
  f.outputs = {f.op(ScalarOp::ldexp_, whole, up)};
  return build.cast(build.map(std::move(f), {value, random}), as);
}

Halves split_halves(Builder& build, ValueId value) {
  constexpr int64_t kUpper = 0xffff0000;
  const auto bits_of = [&](Formula& f, int number) { return f.convert(ScalarOp::bitcast_, Scalar::u32, number); };
  Formula upper;
  upper.inputs = {Scalar::f32};
  const int up = upper.op(ScalarOp::add_, bits_of(upper, upper.input(0)), upper.integer(Scalar::u32, 0x8000));
  upper.outputs = {
      upper.convert(ScalarOp::bitcast_, Scalar::f32, upper.op(ScalarOp::and_, up, upper.integer(Scalar::u32, kUpper)))};
  Formula lower;
  lower.inputs = {Scalar::f32, Scalar::f32};
  const int off = lower.op(ScalarOp::sub_, bits_of(lower, lower.input(0)), bits_of(lower, lower.input(1)));
  lower.outputs = {lower.convert(ScalarOp::cast_, Scalar::f32, lower.convert(ScalarOp::bitcast_, Scalar::i32, off))};
  Halves out;
  const ValueId near = build.map(std::move(upper), {value});
  out.lower = build.map(std::move(lower), {value, near});
  out.upper = build.cast(near, {Scalar::bf16, nullptr});
  return out;
}

std::pair<float, float> halves_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), upper = (bits + 0x8000U) & 0xffff0000U;
  const int32_t off = std::bit_cast<int32_t>(bits - upper);
  return std::pair<float, float>(std::bit_cast<float>(upper), off);
}

ValueId join_halves(Builder& build, ValueId upper, ValueId lower) {
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int whole = f.convert(ScalarOp::cast_, Scalar::i32, f.input(1));
  const int sum = f.op(ScalarOp::add_, f.convert(ScalarOp::bitcast_, Scalar::u32, f.input(0)),
                       f.convert(ScalarOp::bitcast_, Scalar::u32, whole));
  f.outputs = {f.convert(ScalarOp::bitcast_, Scalar::f32, sum)};
  return build.map(std::move(f), {upper, lower});
}

uint32_t rounding_seed(uint32_t run, int64_t step) {
  const float a = graph::uniform_random(run, 0x5eed, step);
  return run * 0x9e3779b9U + step + static_cast<uint32_t>(a * 0x1p24F) * 0x85ebca6bU;
}

}  // namespace lumen::model::recipe
