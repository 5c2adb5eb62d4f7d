#include "number/gradient/stochastic.h"

#include "number/facts/straight.h"
#include "number/facts/typing.h"

namespace lumen {
namespace {

// A value this close to a code, in steps, counts as on it: larger than the error of a division and a multiplication,
// and negligible otherwise.
constexpr double kOnACode = 0x1p-16;

}  // namespace

std::optional<FakeQuantize> stochastic_formula(const Format& f) {
  std::optional<FakeQuantize> fake = fake_quantize_formula(f);
  if (!fake) return std::nullopt;
  const Formula old = fake->formula;
  Formula made;
  made.inputs = old.inputs;
  made.inputs.push_back(Scalar::f32);
  std::vector<int> to(old.nodes.size());
  std::vector<bool> of_value(old.nodes.size(), false);
  int roundings = 0;
  for (size_t n = 0; n < old.nodes.size(); ++n) {
    const ScalarNode& node = old.nodes[n];
    int args[3] = {-1, -1, -1};
    for (int k = 0; k < 3 && node.args[k] >= 0; ++k) {
      args[k] = to[node.args[k]];
      if (of_value[node.args[k]]) of_value[n] = true;
    }
    if (node.op == ScalarOp::input) {
      to[n] = made.input(node.index);
      of_value[n] = node.index == 0;
    } else if (node.op == ScalarOp::constant) {
      to[n] = is_float(node.type) ? made.constant(node.type, node.real) : made.integer(node.type, node.integer);
    } else if ((node.op == ScalarOp::rint_ || node.op == ScalarOp::round_) && of_value[n]) {
      ++roundings;
      const int number = made.input(made.inputs.size() - 1);
      const int low = made.op(ScalarOp::max_, number, made.constant(Scalar::f32, kOnACode));
      const int part = made.op(ScalarOp::min_, low, made.constant(Scalar::f32, 1 - kOnACode));
      to[n] = made.op(ScalarOp::floor_, made.op(ScalarOp::add_, args[0], part));
    } else if (scalar_op_info(node.op).result == "cast") {
      to[n] = made.convert(node.op, node.type, args[0]);
    } else {
      to[n] = made.op(node.op, args[0], args[1], args[2]);
    }
  }
  if (roundings != 1) return std::nullopt;
  for (const int output : old.outputs) made.outputs.push_back(to[output]);
  fake->formula = simplify_formula(made);
  return fake;
}

FormatRef as_field(const Format& f, const ElementField& field) {
  auto out = std::make_shared<Format>(f);
  const Field& of = f.fields[field.field];
  out->name = f.name + "." + of.name;
  out->gguf_type = out->gguf_file_type = std::nullopt;
  out->safetensors_type.clear();
  RoutineExpr value{RoutineExpr::Kind::field, of.type.register_type()};
  value.slot = field.field;
  value.args = {field.index};
  out->decode.variables.resize(1);
  out->decode.body.clear();
  out->decode.result = of.type.is_float ? value : read::make_cast(ScalarOp::cast_, Scalar::f32, value);
  out->source_text += "\n# as its field " + print_expression(value, f, f.decode) + "\n";
  out->hash = hash_text(out->source_text);
  return out;
}

}  // namespace lumen
