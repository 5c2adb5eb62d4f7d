// Scalar algebra over numbers, extents and tensors. An elementwise expression grows one formula until it gets a name,
// is used by another operator, or would be broadcast although it is costly: then it becomes one `map` node.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {
namespace {

using Build = int (*)(Formula&, const int*);

// The types of the arguments. choice: a boolean, then two of one type; scaled: a float and an i32; truth: booleans;
// bits: integers or booleans.
enum class Domain : uint8_t { numbers, floats, integers, bits, any, choice, scaled };

struct Row {
  std::string_view name;
  int arity;
  Domain domain;
  Build build;
};

int one(Formula& f, int a) {
  return f.constant(f.type(a), 1);
}
int zero(Formula& f, int a) {
  return f.constant(f.type(a), 0);
}

template <ScalarOp op>
int single(Formula& f, const int* a) {
  return f.op(op, a[0]);
}
template <ScalarOp op>
int twin(Formula& f, const int* a) {
  return f.op(op, a[0], a[1]);
}
template <ScalarOp op>
int triple(Formula& f, const int* a) {
  return f.op(op, a[0], a[1], a[2]);
}
template <ScalarOp op>
int swapped(Formula& f, const int* a) {
  return f.op(op, a[1], a[0]);
}

int rsqrt(Formula& f, const int* a) {
  return f.op(ScalarOp::div_, one(f, a[0]), f.op(ScalarOp::sqrt_, a[0]));
}
int recip(Formula& f, const int* a) {
  return f.op(ScalarOp::select_, f.op(ScalarOp::ne_, a[0], zero(f, a[0])), f.op(ScalarOp::div_, one(f, a[0]), a[0]),
              zero(f, a[0]));
}
// Clamps the exponential to a finite number, because else its derivative is zero times infinity.
int sigmoid(Formula& f, const int* a) {
  const Scalar type = f.type(a[0]);
  const double most = type == Scalar::f64 ? 700 : type == Scalar::f16 ? 11 : 88;
  const int x = f.op(ScalarOp::min_, f.op(ScalarOp::neg_, a[0]), f.constant(type, most));
  return f.op(ScalarOp::div_, one(f, a[0]), f.op(ScalarOp::add_, one(f, a[0]), f.op(ScalarOp::exp_, x)));
}
int sign(Formula& f, const int* a) {
  const int up = f.op(ScalarOp::lt_, zero(f, a[0]), a[0]), down = f.op(ScalarOp::lt_, a[0], zero(f, a[0]));
  return f.op(ScalarOp::select_, up, one(f, a[0]),
              f.op(ScalarOp::select_, down, f.constant(f.type(a[0]), -1), zero(f, a[0])));
}
int clamp(Formula& f, const int* a) {
  return f.op(ScalarOp::min_, f.op(ScalarOp::max_, a[0], a[1]), a[2]);
}
int exponent(Formula& f, const int* a) {
  return f.convert(ScalarOp::exponent_, Scalar::i32, a[0]);
}

// Operators first, then functions of the language.
constexpr std::array<Row, 45> kRows = {{
    {"+", 2, Domain::numbers, twin<ScalarOp::add_>},
    {"-", 2, Domain::numbers, twin<ScalarOp::sub_>},
    {"*", 2, Domain::numbers, twin<ScalarOp::mul_>},
    {"/", 2, Domain::numbers, twin<ScalarOp::div_>},
    {"%", 2, Domain::integers, twin<ScalarOp::rem_>},
    {"**", 2, Domain::floats, twin<ScalarOp::pow_>},
    {"==", 2, Domain::any, twin<ScalarOp::eq_>},
    {"!=", 2, Domain::any, twin<ScalarOp::ne_>},
    {"<", 2, Domain::numbers, twin<ScalarOp::lt_>},
    {"<=", 2, Domain::numbers, twin<ScalarOp::le_>},
    {">", 2, Domain::numbers, swapped<ScalarOp::lt_>},
    {">=", 2, Domain::numbers, swapped<ScalarOp::le_>},
    {"and", 2, Domain::bits, twin<ScalarOp::and_>},
    {"or", 2, Domain::bits, twin<ScalarOp::or_>},
    {"&", 2, Domain::bits, twin<ScalarOp::and_>},
    {"|", 2, Domain::bits, twin<ScalarOp::or_>},
    {"^", 2, Domain::bits, twin<ScalarOp::xor_>},
    {"<<", 2, Domain::integers, twin<ScalarOp::shl_>},
    {">>", 2, Domain::integers, twin<ScalarOp::shr_>},
    {"negate", 1, Domain::numbers, single<ScalarOp::neg_>},
    {"not", 1, Domain::bits, single<ScalarOp::not_>},
    {"~", 1, Domain::bits, single<ScalarOp::not_>},
    {"abs", 1, Domain::numbers, single<ScalarOp::abs_>},
    {"sign", 1, Domain::numbers, sign},
    {"min", 2, Domain::numbers, twin<ScalarOp::min_>},
    {"max", 2, Domain::numbers, twin<ScalarOp::max_>},
    {"clamp", 3, Domain::numbers, clamp},
    {"floor", 1, Domain::floats, single<ScalarOp::floor_>},
    {"ceil", 1, Domain::floats, single<ScalarOp::ceil_>},
    {"trunc", 1, Domain::floats, single<ScalarOp::trunc_>},
    {"rint", 1, Domain::floats, single<ScalarOp::rint_>},
    {"round", 1, Domain::floats, single<ScalarOp::round_>},
    {"sqrt", 1, Domain::floats, single<ScalarOp::sqrt_>},
    {"rsqrt", 1, Domain::floats, rsqrt},
    {"recip", 1, Domain::floats, recip},
    {"exp", 1, Domain::floats, single<ScalarOp::exp_>},
    {"log", 1, Domain::floats, single<ScalarOp::log_>},
    {"sin", 1, Domain::floats, single<ScalarOp::sin_>},
    {"cos", 1, Domain::floats, single<ScalarOp::cos_>},
    {"tanh", 1, Domain::floats, single<ScalarOp::tanh_>},
    {"sigmoid", 1, Domain::floats, sigmoid},
    {"exponent", 1, Domain::floats, exponent},
    {"ldexp", 2, Domain::scaled, twin<ScalarOp::ldexp_>},
    {"fma", 3, Domain::floats, triple<ScalarOp::fma_>},
    {"select", 3, Domain::choice, triple<ScalarOp::select_>},
}};

const Row* row_of(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return &r;
  return nullptr;
}

bool is_word(std::string_view name) {
  return name[0] >= 'a' && name[0] <= 'z' && name != "and" && name != "or" && name != "not" && name != "negate";
}

bool is_costly(const Formula& f) {
  return std::any_of(f.nodes.begin(), f.nodes.end(), [](const ScalarNode& n) {
    switch (n.op) {
      case ScalarOp::div_:
      case ScalarOp::rem_:
      case ScalarOp::sqrt_:
      case ScalarOp::exp_:
      case ScalarOp::log_:
      case ScalarOp::sin_:
      case ScalarOp::cos_:
      case ScalarOp::tanh_:
      case ScalarOp::pow_:
        return true;
      default:
        return false;
    }
  });
}

constexpr size_t kMaxFormula = 64;  // scalar nodes of a growing formula before it becomes a map of its own

// Grows one formula from those of its arguments.
class Merge {
 public:
  Formula formula;
  std::vector<ValueId> operands;

  int slot(ValueId id, Scalar type) {
    const auto found = std::find(operands.begin(), operands.end(), id);
    const size_t at = found - operands.begin();
    if (found == operands.end()) {
      operands.push_back(id);
      formula.inputs.push_back(type);
    }
    return formula.input(at);
  }

  int number(const Number& n, Scalar type) {
    return is_float(type) ? formula.constant(type, n.value()) : formula.integer(type, n.integer);
  }

  int tensor(const Value& v) {
    if (v.id >= 0) return slot(v.id, v.element.scalar);
    std::vector<int> moved(v.formula.nodes.size(), -1);
    const auto arg = [&](const ScalarNode& n, int k) { return n.args[k] < 0 ? -1 : moved[n.args[k]]; };
    for (size_t i = 0; i < v.formula.nodes.size(); ++i) {
      const ScalarNode& n = v.formula.nodes[i];
      if (n.op == ScalarOp::input) {
        moved[i] = slot(v.operands[n.index], n.type);
      } else if (n.op == ScalarOp::constant) {
        moved[i] = is_float(n.type) ? formula.constant(n.type, n.real) : formula.integer(n.type, n.integer);
      } else if (scalar_op_info(n.op).result == "cast") {
        moved[i] = formula.convert(n.op, n.type, arg(n, 0));
      } else {
        moved[i] = formula.op(n.op, arg(n, 0), arg(n, 1), arg(n, 2));
      }
    }
    return moved[v.formula.outputs[0]];
  }

  Value value(int output, Shape shape) {
    formula.outputs = {output};
    Value v;
    v.kind = Value::Kind::tensor;
    v.shape = std::move(shape);
    v.element = {formula.type(output), nullptr};
    v.formula = std::move(formula);
    v.operands = std::move(operands);
    return v;
  }
};

bool stretches(const Shape& a, const Shape& b, Shape* out) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  *out = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    Dim& o = (*out)[d + shift];
    if (o == shorter[d] || shorter[d] == Dim(1)) continue;
    if (o != Dim(1)) return false;
    o = shorter[d];
  }
  return true;
}

std::string spoken(std::string_view what) {
  return what == "negate" ? "'-'" : fmt::format("'{}'", what);
}

Number folded(const Formula& f, int node) {
  const ScalarNode& n = f.nodes[node];
  if (n.type == Scalar::boolean) return Number::truth(n.integer != 0);
  return is_float(n.type) ? Number::of(n.real) : Number::of(n.integer);
}

// The common scalar type of the arguments. Numbers take the type of the tensors.
Scalar common_scalar(const Row& row, const std::vector<Value>& args, const std::string& who, const Place& place) {
  const bool all_numbers = std::all_of(args.begin(), args.end(), [](const Value& v) { return v.is_number(); });
  std::optional<Scalar> common;
  const size_t first_alike = row.domain == Domain::choice ? 1 : 0;
  const size_t last_alike = row.domain == Domain::scaled ? 1 : args.size();
  for (size_t i = first_alike; i < last_alike; ++i) {
    if (!args[i].is_tensor()) continue;
    const Scalar s = args[i].element.scalar;
    if (common && *common != s) {
      const Scalar to = is_float(s) ? s : *common;
      throw error_at(place,
                     fmt::format("{} of different elements: {} and {}", who, scalar_name(*common), scalar_name(s)),
                     fmt::format("convert one of them: {}(...)", scalar_name(to)));
    }
    common = s;
  }
  if (!common) {
    const auto truth = [](const Value& v) { return v.is_number() && v.number.kind == Number::Kind::truth; };
    const auto real = [](const Value& v) { return v.is_number() && v.number.kind == Number::Kind::real; };
    const auto begin = args.begin() + first_alike, end = args.begin() + last_alike;
    if (std::any_of(begin, end, truth)) {
      common = Scalar::boolean;
    } else if (std::any_of(begin, end, real) || row.domain == Domain::floats || row.domain == Domain::scaled ||
               (row.domain == Domain::choice && !all_numbers)) {
      common = all_numbers ? Scalar::f64 : Scalar::f32;
    } else {
      common = all_numbers ? Scalar::i64 : Scalar::i32;
    }
  }
  return *common;
}

// Rejects arguments whose type the operation does not support.
void check_domain(const Row& row, const std::string& what, Scalar common, const std::string& who, const Place& place) {
  const bool wants_float = row.domain == Domain::floats || row.domain == Domain::scaled;
  const bool wants_integer = row.domain == Domain::integers || row.domain == Domain::bits;
  const bool truth = common == Scalar::boolean;
  if ((wants_float && !is_float(common)) || (wants_integer && is_float(common)) ||
      (truth && row.domain != Domain::any && row.domain != Domain::bits && row.domain != Domain::choice)) {
    const char* wanted = wants_float     ? "floats"
                         : wants_integer ? row.domain == Domain::bits ? "truth values or integers" : "integers"
                                         : "numbers";
    throw error_at(place, fmt::format("{} needs {}, found {}", who, wanted, scalar_name(common)),
                   wants_float && !truth   ? "convert it: f32(...)"
                   : truth && !wants_float ? "choose numbers by it: select(c, 1.0, 0.0)"
                                           : "");
  }
  if (row.domain == Domain::bits && (what == "and" || what == "or" || what == "not") && !truth)
    throw error_at(place, fmt::format("{} needs truth values, found {}", who, scalar_name(common)),
                   "bits of integers are combined with & | ^ ~");
}

}  // namespace

bool is_elementwise_builtin(const std::string& name) {
  return !name.empty() && is_word(name) && row_of(name) != nullptr;
}

std::vector<std::string> elementwise_builtin_names() {
  std::vector<std::string> out;
  for (const Row& r : kRows)
    if (is_word(r.name)) out.emplace_back(r.name);
  return out;
}

Value Elaboration::elementwise(const std::string& what, std::vector<Value> args, const Place& place) {
  const Row* row = row_of(what);
  LUMEN_CHECK(row, "no elementwise operation {}", what);
  const std::string who = spoken(what);
  if (std::ssize(args) != row->arity)
    throw error_at(
        place, fmt::format("{} takes {} argument{}, not {}", who, row->arity, row->arity == 1 ? "" : "s", args.size()));
  for (Value& v : args) {
    v = plain(std::move(v), place);
    if (!v.is_tensor() && !v.is_number() && v.kind != Value::Kind::dim)
      throw error_at(place, fmt::format("{} needs numbers or tensors, found {}", who, describe(v)));
  }

  const bool all_numbers = std::all_of(args.begin(), args.end(), [](const Value& v) { return v.is_number(); });
  const Scalar common = common_scalar(*row, args, who, place);
  check_domain(*row, what, common, who, place);

  Shape shape;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].is_tensor()) continue;
    Shape joint;
    if (!stretches(shape, args[i].shape, &joint))
      throw error_at(place, fmt::format("shapes do not fit: {} and {}", written(shape), written(args[i].shape)),
                     "extents align at the right; they must be equal, or one of them 1");
    shape = std::move(joint);
  }

  Merge merge;
  int nodes[3] = {-1, -1, -1};
  for (size_t i = 0; i < args.size(); ++i) {
    Scalar type = common;
    if (row->domain == Domain::choice && i == 0) type = Scalar::boolean;
    if (row->domain == Domain::scaled && i == 1) type = Scalar::i32;
    Value& v = args[i];
    if (v.kind == Value::Kind::dim) v = Value::of_node(graph_, node_of(v, place, type));
    if (v.is_tensor()) {
      if (v.element.scalar != type)
        throw error_at(
            place,
            fmt::format("{} needs {} as argument {}, found {}", who,
                        type == Scalar::boolean ? "a truth value" : scalar_name(type), i + 1, written(v.type())),
            type == Scalar::boolean ? "a comparison makes truth values: x != 0" : "");
      if (v.is_pending() && (v.formula.nodes.size() > kMaxFormula || (v.shape != shape && is_costly(v.formula))))
        v = finished(std::move(v), place);
      nodes[i] = merge.tensor(v);
    } else {
      const bool is_truth = v.number.kind == Number::Kind::truth;
      if (is_truth != (type == Scalar::boolean))
        throw error_at(place, fmt::format("{} of {} and elements of {}", who, describe(v), scalar_name(type)));
      if (!is_float(type) && v.number.kind == Number::Kind::real)
        throw error_at(
            place, fmt::format("{} of elements of {} and the real number {}", who, scalar_name(type), v.number.real),
            "convert the tensor: f32(...), or write a whole number");
      nodes[i] = merge.number(v.number, type);
    }
  }
  if (all_numbers && (what == "/" || what == "%") && !is_float(common) && args[1].number.integer == 0)
    throw error_at(place, "division by zero");
  const int out = row->build(merge.formula, nodes);
  if (all_numbers) {
    const Number n = folded(merge.formula, out);
    if (n.kind == Number::Kind::real && !std::isfinite(n.real))
      throw error_at(place, fmt::format("{} of these numbers has no finite value", who));
    return Value::of(n);
  }
  return merge.value(out, std::move(shape));
}

Value Elaboration::unary(const std::string& op, Value a, const Place& place) {
  if (op == "-" && a.is_integer() && a.number.integer != INT64_MIN) return Value::of(Number::of(-a.number.integer));
  return elementwise(op == "-" ? "negate" : op, {std::move(a)}, place);
}

// Extents stay extents if the result is again a product of symbols.
std::optional<Value> Elaboration::dim_arithmetic(const std::string& op, const Value& a, const Value& b,
                                                 const Place& place) {
  const auto as_dim = [](const Value& v) -> std::optional<Dim> {
    if (v.kind == Value::Kind::dim) return v.dim;
    if (v.is_integer()) return Dim(v.number.integer);
    return std::nullopt;
  };
  const auto x = as_dim(a), y = as_dim(b);
  if (!x || !y) return std::nullopt;
  if (op == "*" && x->coefficient > 0 && y->coefficient > 0) return Value::of(*x * *y);
  if (op == "/" && y->coefficient > 0)
    if (auto q = divide(*x, *y)) return Value::of(*q);
  if (op == "-" && *x == *y) return Value::of(Number::of(int64_t{0}));
  if (op == "+" && y->is_number() && y->coefficient == 0) return a;
  if (op == "+" && x->is_number() && x->coefficient == 0) return b;
  if (op == "-" && y->is_number() && y->coefficient == 0) return a;
  if (op == "%" && y->coefficient > 0 && divide(*x, *y)) return Value::of(Number::of(int64_t{0}));
  if (*x == *y) {
    if (op == "==" || op == "<=" || op == ">=") return Value::of(Number::truth(true));
    if (op == "!=" || op == "<" || op == ">") return Value::of(Number::truth(false));
  }
  return std::nullopt;
}

Value Elaboration::binary(const std::string& op, Value a, Value b, const Place& place) {
  if (a.kind == Value::Kind::text && b.kind == Value::Kind::text && (op == "==" || op == "!="))
    return Value::of(Number::truth((a.text == b.text) == (op == "==")));
  if (a.kind == Value::Kind::dim || b.kind == Value::Kind::dim)
    if (auto v = dim_arithmetic(op, a, b, place)) return *v;
  if (a.is_integer() && b.is_integer()) {
    const int64_t x = a.number.integer, y = b.number.integer;
    int64_t r = 0;
    bool known = true, overflow = false;
    if (op == "+") {
      overflow = __builtin_add_overflow(x, y, &r);
    } else if (op == "-") {
      overflow = __builtin_sub_overflow(x, y, &r);
    } else if (op == "*") {
      overflow = __builtin_mul_overflow(x, y, &r);
    } else if (op == "**" && y >= 0) {
      r = 1;
      for (int64_t i = 0; i < y && !overflow && (x > 1 || x < -1); ++i) overflow = __builtin_mul_overflow(r, x, &r);
      if (x == 0 && y > 0) r = 0;
      if (x == -1 && y % 2 != 0) r = -1;
    } else {
      known = false;
    }
    if (overflow) throw error_at(place, "this whole number does not fit into 64 bits", "use reals, e.g. 2.0");
    if (known) return Value::of(Number::of(r));
  }
  if (op == "**" && b.is_number() && a.is_tensor()) {
    // Small integer powers are products, exact for negative bases too.
    const double p = b.number.value();
    if (p == 0.5) return elementwise("sqrt", {std::move(a)}, place);
    if (p == std::floor(p) && std::abs(p) >= 1 && std::abs(p) <= 8) {
      a = plain(std::move(a), place);
      Value r = a;
      for (int i = 1; i < static_cast<int>(std::abs(p)); ++i) r = elementwise("*", {std::move(r), a}, place);
      return p > 0 ? r : elementwise("/", {Value::of(Number::of(1.0)), std::move(r)}, place);
    }
  }
  if (op == "**" && b.is_integer() && (!a.is_tensor() || is_float(a.element.scalar)))
    b.number = Number::of(b.number.value());
  if ((op == "and" || op == "or") && (a.is_integer() || b.is_integer()))
    throw error_at(place, fmt::format("'{}' needs truth values", op), "a comparison makes a truth value: x != 0");
  return elementwise(op, {std::move(a), std::move(b)}, place);
}

Value Elaboration::convert(Value v, Scalar to, const Place& place) {
  v = plain(std::move(v), place);
  if (v.is_number()) {
    if (to == Scalar::boolean) throw error_at(place, "a number is not a truth value", "write x != 0");
    if (is_float(to)) return Value::of(Number::of(round_to_scalar(to, v.number.value())));
    const double x = std::trunc(v.number.value());
    if (v.number.kind == Number::Kind::real && std::abs(x) > 9e15)
      throw error_at(place, fmt::format("{} is too large for an integer", x));
    return Value::of(Number::of(v.number.kind == Number::Kind::real ? static_cast<int64_t>(x) : v.number.integer));
  }
  if (v.kind == Value::Kind::dim) {
    if (to == Scalar::i32) return v;  // an extent is already an integer
    v = Value::of_node(graph_, count(v.dim, place));
  }
  if (!v.is_tensor()) throw error_at(place, fmt::format("{} cannot be converted to {}", describe(v), scalar_name(to)));
  if (v.element.scalar == to) return v;
  if (to == Scalar::boolean) return elementwise("!=", {std::move(v), Value::of(Number::of(int64_t{0}))}, place);
  Merge merge;
  const int a = merge.tensor(v);
  return merge.value(merge.formula.convert(ScalarOp::cast_, to, a), v.shape);
}

}  // namespace lumen::graph
