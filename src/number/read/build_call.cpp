// Calls: builtins of the language, and functions, which are inlined with their arrays by reference.
// Proved by tests/number/reader_test.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/messages/spelling.h"
#include "number/read/routine_builder.h"

namespace lumen::read {
namespace {

constexpr size_t kMaxInlining = 32;

const std::vector<std::string> kBuiltins = {
    "abs",  "min",       "max", "clamp", "floor",   "ceil",     "trunc",    "round", "rint",   "sqrt", "exp",
    "log",  "sin",       "cos", "tanh",  "pow",     "exponent", "ldexp",    "recip", "select", "int",  "float",
    "bits", "from_bits", "f16", "bf16",  "nearest", "sign",     "popcount", "len",   "fma"};

// Population count by adding neighbouring bits, then pairs, ...
RoutineExpr popcount(RoutineExpr n, const Place& place) {
  auto constant = [](int64_t value) { return integer_constant(value); };
  RoutineExpr v = make_cast(ScalarOp::bitcast_, Scalar::u32, convert_to(to_run_time(std::move(n)), Scalar::i32, place));
  auto masked = [&](const RoutineExpr& x, int by, int64_t mask) {
    const RoutineExpr shifted =
        by == 0 ? x : make_op(ScalarOp::shr_, {x, convert_to(constant(by), Scalar::u32, place)});
    return make_op(ScalarOp::and_, {shifted, convert_to(constant(mask), Scalar::u32, place)});
  };
  for (const auto& [by, mask] :
       {std::pair<int, int64_t>{1, 0x55555555}, {2, 0x33333333}, {4, 0x0f0f0f0f}, {8, 0x00ff00ff}, {16, 0x0000ffff}}) {
    v = make_op(ScalarOp::add_, {masked(v, 0, mask), masked(v, by, mask)});
  }
  return make_cast(ScalarOp::cast_, Scalar::i32, std::move(v));
}

}  // namespace

std::vector<RoutineExpr> RoutineBuilder::call(const lang::Expr& e) {
  const lang::Function* f = context_.names.function(e.text);
  if (auto value = builtin(e)) {
    if (f) throw error_at(f->place, fmt::format("'{}' is a function of the language", f->name), "choose another name");
    return {std::move(*value)};
  }
  if (f) return inline_function(*f, e);
  std::vector<std::string> known = kBuiltins;
  for (const lang::File* file : context_.names.files()) {
    for (const lang::Function& other : file->functions) known.push_back(other.name);
  }
  throw error_at(e.place, fmt::format("there is no function '{}'", e.text), did_you_mean_any(e.text, known));
}

std::optional<RoutineExpr> RoutineBuilder::builtin(const lang::Expr& e) {
  const std::string& f = e.text;
  if (std::find(kBuiltins.begin(), kBuiltins.end(), f) == kBuiltins.end()) return std::nullopt;
  for (const std::string& keyword : e.names) {
    if (!keyword.empty() && f != "clamp") throw error_at(e.place, fmt::format("'{}' takes its arguments in order", f));
  }
  auto need = [&](size_t count) {
    if (e.args.size() != count)
      throw error_at(e.place, fmt::format("'{}' takes {} arguments, not {}", f, count, e.args.size()));
  };
  auto argument = [&](size_t k) { return expression(*e.args[k]); };
  auto floating = [&](size_t k) { return convert_to(argument(k), Scalar::f32, e.args[k]->place); };
  if (f == "len") {
    need(1);
    return length_of(array_of(*e.args[0]));
  }
  if (f == "nearest") {
    need(2);
    return nearest(e);
  }
  if (f == "min" || f == "max") return extreme(e);
  if (f == "clamp") {
    need(3);
    RoutineExpr value = argument(0), low = argument(1), high = argument(2);
    unify(value, low, e.place);
    RoutineExpr inside = make_op(ScalarOp::max_, {std::move(value), std::move(low)});
    unify(inside, high, e.place);
    return make_op(ScalarOp::min_, {std::move(inside), std::move(high)});
  }
  if (f == "select") {
    need(3);
    return choice(e);
  }
  if (f == "abs") {
    need(1);
    RoutineExpr value = argument(0);
    if (value.type == Scalar::boolean) throw error_at(e.place, "abs of a truth value");
    return make_op(ScalarOp::abs_, {std::move(value)});
  }
  if (f == "floor" || f == "ceil" || f == "trunc" || f == "round" || f == "rint") {
    need(1);
    RoutineExpr value = argument(0);
    if (is_whole(value.type)) return value;
    return make_op(*scalar_op_from_name(f), {convert_to(std::move(value), Scalar::f32, e.place)});
  }
  if (f == "sqrt" || f == "exp" || f == "log" || f == "sin" || f == "cos" || f == "tanh") {
    need(1);
    return make_op(*scalar_op_from_name(f), {floating(0)});
  }
  if (f == "pow") {
    need(2);
    return make_op(ScalarOp::pow_, {floating(0), floating(1)});
  }
  if (f == "fma") {
    need(3);
    return make_op(ScalarOp::fma_, {floating(0), floating(1), floating(2)});
  }
  if (f == "exponent") {
    need(1);
    return make_cast(ScalarOp::exponent_, Scalar::i32, floating(0));
  }
  if (f == "ldexp") {
    need(2);
    return make_op(ScalarOp::ldexp_,
                   {floating(0), convert_to(to_run_time(argument(1)), Scalar::i32, e.args[1]->place)});
  }
  if (f == "recip") {
    need(1);
    return inverse_of(in_variable("divisor", floating(0)));
  }
  if (f == "sign") {
    need(1);
    return sign_of(in_variable("signed", to_run_time(argument(0))), e.place);
  }
  need(1);
  if (f == "int") {
    RoutineExpr value = argument(0);
    if (is_untyped(value)) return value;
    return make_cast(ScalarOp::cast_, Scalar::i32, std::move(value));
  }
  if (f == "float") {
    RoutineExpr value = argument(0);
    return make_cast(ScalarOp::cast_, Scalar::f32, to_run_time(std::move(value)));
  }
  if (f == "bits") return make_cast(ScalarOp::bitcast_, Scalar::i32, floating(0));
  if (f == "from_bits") {
    return make_cast(ScalarOp::bitcast_, Scalar::f32, convert_to(to_run_time(argument(0)), Scalar::i32, e.place));
  }
  if (f == "f16" || f == "bf16") {
    const Scalar narrow = f == "f16" ? Scalar::f16 : Scalar::bf16;
    return make_cast(ScalarOp::cast_, Scalar::f32, make_cast(ScalarOp::cast_, narrow, floating(0)));
  }
  if (f == "popcount") return popcount(in_variable("bits", to_run_time(argument(0))), e.place);
  LUMEN_UNREACHABLE("builtin {}", f);
}

// min(a, b, ...) and max(a, b, ...).
RoutineExpr RoutineBuilder::extreme(const lang::Expr& e) {
  if (e.args.size() < 2)
    throw error_at(e.place, fmt::format("'{}' takes two or more arguments", e.text),
                   fmt::format("a reduction is written {}(j) x[j]", e.text));
  RoutineExpr value = expression(*e.args[0]);
  for (size_t k = 1; k < e.args.size(); ++k) {
    RoutineExpr other = expression(*e.args[k]);
    unify(value, other, e.place);
    value = make_op(e.text == "min" ? ScalarOp::min_ : ScalarOp::max_, {std::move(value), std::move(other)});
  }
  return value;
}

// select(c, a, b); a constant condition is resolved while the routine is built.
RoutineExpr RoutineBuilder::choice(const lang::Expr& e) {
  RoutineExpr condition = to_boolean(expression(*e.args[0]), e.args[0]->place);
  RoutineExpr a = expression(*e.args[1]), b = expression(*e.args[2]);
  unify(a, b, e.place);
  a = to_run_time(std::move(a));
  b = convert_to(to_run_time(std::move(b)), a.type, e.place);
  if (is_constant(condition)) return condition.integer != 0 ? a : b;
  return make_op(ScalarOp::select_, {std::move(condition), std::move(a), std::move(b)});
}

// 1 / value, or 0 for zero.
RoutineExpr RoutineBuilder::inverse_of(const RoutineExpr& value) {
  RoutineExpr inverse = make_op(ScalarOp::div_, {float_constant(1), value});
  return make_op(ScalarOp::select_,
                 {make_op(ScalarOp::ne_, {value, float_constant(0)}), std::move(inverse), float_constant(0)});
}

RoutineExpr RoutineBuilder::sign_of(const RoutineExpr& value, const Place& place) {
  auto of = [&](int n) {
    return is_float(value.type) ? float_constant(n) : convert_to(integer_constant(n), value.type, place);
  };
  RoutineExpr positive = make_op(ScalarOp::select_, {make_op(ScalarOp::lt_, {of(0), value}), of(1), of(0)});
  return make_op(ScalarOp::select_, {make_op(ScalarOp::lt_, {value, of(0)}), of(-1), std::move(positive)});
}

// nearest(table, x): how many midpoints between neighbours (in order of value) are at or below x; ties go up.
// Straight-line code: short tables by counting, long ones by binary search.
RoutineExpr RoutineBuilder::nearest(const lang::Expr& e) {
  const Array array = array_of(*e.args[0]);
  if (array.kind != Array::Kind::table) throw error_at(e.args[0]->place, "'nearest' searches a table");
  const FormatTable table = context_.format.tables[array.slot];
  const RoutineExpr x = in_variable("wanted", convert_to(expression(*e.args[1]), Scalar::f32, e.args[1]->place));
  std::vector<size_t> order(table.values.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return table.values[a] < table.values[b]; });
  // The first of equal entries is kept.
  order.erase(
      std::unique(order.begin(), order.end(), [&](size_t a, size_t b) { return table.values[a] == table.values[b]; }),
      order.end());
  std::vector<double> middle;
  for (size_t k = 1; k < order.size(); ++k) {
    const double exact = (table.values[order[k - 1]] + table.values[order[k]]) / 2;
    auto rounded = static_cast<float>(exact);
    if (rounded < exact) rounded = std::nextafter(rounded, std::numeric_limits<float>::infinity());
    middle.push_back(rounded);
  }
  constexpr size_t kCounted = 16;
  auto i32 = [&](int64_t value) { return convert_to(integer_constant(value), Scalar::i32, e.place); };
  RoutineExpr at = i32(0);
  if (order.size() <= kCounted) {
    for (double m : middle) {
      RoutineExpr above = make_op(ScalarOp::le_, {float_constant(m), x});
      RoutineExpr one = make_cast(ScalarOp::cast_, Scalar::i32, std::move(above));
      at = is_constant(at) && at.integer == 0 ? std::move(one)
                                              : make_op(ScalarOp::add_, {std::move(at), std::move(one)});
    }
    at = in_variable("place", std::move(at));
  } else {
    const size_t size = std::bit_ceil(order.size());
    middle.resize(size - 1, std::numeric_limits<double>::infinity());
    const Array middles{Array::Kind::table, add_table(table.name + " middles", Scalar::f32, middle, e.place)};
    for (size_t step = size / 2; step >= 1; step /= 2) {
      RoutineExpr index = binary("+", at, integer_constant(step - 1), e.place);
      RoutineExpr above = make_op(ScalarOp::le_, {read_array(middles, std::move(index), e.place), x});
      RoutineExpr more = make_op(ScalarOp::select_, {std::move(above), i32(static_cast<int64_t>(step)), i32(0)});
      at = in_variable("place", make_op(ScalarOp::add_, {at, std::move(more)}));
    }
    // Infinity also compares above the padding.
    at = binary("+", make_op(ScalarOp::min_, {at, i32(std::ssize(order) - 1)}), integer_constant(0), e.place);
  }
  bool in_order = order.size() == table.values.size();
  for (size_t k = 0; k < order.size(); ++k) in_order = in_order && order[k] == k;
  if (in_order) return at;
  const std::vector<double> entries(order.begin(), order.end());
  const Array places{Array::Kind::table, add_table(table.name + " order", Scalar::i32, entries, e.place)};
  return read_array(places, std::move(at), e.place);
}

void RoutineBuilder::bind_parameters(const lang::Function& f, const lang::Expr& e, Frame& frame) {
  std::vector<const lang::Expr*> given(f.params.size(), nullptr);
  size_t position = 0;
  for (size_t k = 0; k < e.args.size(); ++k) {
    size_t at = position;
    if (!e.names.empty() && !e.names[k].empty()) {
      at = 0;
      while (at < f.params.size() && f.params[at].name != e.names[k]) ++at;
      if (at == f.params.size())
        throw error_at(e.args[k]->place, fmt::format("'{}' has no parameter '{}'", f.name, e.names[k]));
    } else {
      ++position;
    }
    if (at >= f.params.size()) throw error_at(e.place, fmt::format("'{}' takes {} arguments", f.name, f.params.size()));
    if (given[at]) throw error_at(e.args[k]->place, fmt::format("'{}' is given twice", f.params[at].name));
    given[at] = e.args[k].get();
  }
  for (size_t k = 0; k < f.params.size(); ++k) {
    const lang::Param& p = f.params[k];
    const lang::Expr* source = given[k] ? given[k] : p.default_value.get();
    if (!source) throw error_at(e.place, fmt::format("'{}' needs '{}'", f.name, p.name));
    Binding b;
    std::optional<Array> array;
    if (source->kind == lang::ExprKind::name) array = array_named(source->text);
    const bool single_field =
        array && array->kind == Array::Kind::field && array_length(*array) == 1 && !(p.type && p.type->has_dims);
    if (array && !single_field) {
      b.array = *array;
    } else {
      RoutineExpr value = expression(*source);
      if (p.type && !p.type->has_dims) {
        const auto type = scalar_from_name(p.type->name);
        if (!type) throw error_at(p.type->place, fmt::format("'{}' is no scalar type", p.type->name));
        if (is_float(*type) || !is_float(value.type)) {
          if (!(is_untyped(value) && is_whole(*type)))
            value = convert_to(std::move(value), is_float(*type) ? Scalar::f32 : *type, source->place);
        } else {
          throw error_at(source->place, fmt::format("'{}' of '{}' is a {}", p.name, f.name, p.type->name),
                         "write int(x)");
        }
      }
      // A variable of the caller may change while the function runs, so the value is copied.
      if (is_constant(value)) {
        b.value = std::move(value);
      } else {
        const int slot = new_variable(p.name, value.type);
        set(slot, std::move(value));
        b.value = variable(slot);
      }
    }
    frame.scopes.back()[p.name] = std::move(b);
  }
}

std::vector<RoutineExpr> RoutineBuilder::inline_function(const lang::Function& f, const lang::Expr& e) {
  if (frames_.size() > kMaxInlining) {
    throw error_at(e.place, fmt::format("calls are nested deeper than {}", kMaxInlining),
                   "functions of formats cannot call themselves");
  }
  for (const Frame& frame : frames_) {
    if (frame.function == &f) throw error_at(e.place, fmt::format("'{}' calls itself", f.name), "use a loop");
  }
  Frame frame;
  frame.is_function = true;
  frame.function = &f;
  frame.scopes.emplace_back();
  bind_parameters(f, e, frame);
  frames_.push_back(std::move(frame));
  std::vector<RoutineExpr> outer_results = std::move(results_);
  std::vector<int> outer_variables = std::move(result_variables_);
  const bool outer_flag = results_in_variables_;
  results_.clear();
  result_variables_.clear();
  const bool gives = gives_result(f.body);
  results_in_variables_ = false;
  const bool ended = statements(f.body, 0);
  if (gives && !ended) throw error_at(f.place, fmt::format("'{}' does not give a value on every path", f.name));
  std::vector<RoutineExpr> values = std::move(results_);
  results_ = std::move(outer_results);
  result_variables_ = std::move(outer_variables);
  results_in_variables_ = outer_flag;
  frames_.pop_back();
  return values;
}

}  // namespace lumen::read
