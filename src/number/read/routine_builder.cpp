// Common state of a routine under construction: variables, scopes, limits, and the proof that indices are in range.
// Proved by tests/number/reader_test.cpp.
#include "number/read/routine_builder.h"

#include "base/check.h"

namespace lumen::read {
namespace {

constexpr int64_t kMaxNodes = 200'000;        // of one routine after inlining
constexpr double kMaxSteps = 64.0 * 1048576;  // of one run of it
constexpr size_t kMaxTables = 256;

}  // namespace

RoutineBuilder::RoutineBuilder(FormatContext& context, Role role, Level level)
    : context_(context), role_(role), level_(level) {
  frames_.emplace_back();
  frames_.back().scopes.emplace_back();
}

void RoutineBuilder::may_keep(const Routine* fit, const std::map<std::string, int>* fit_locals,
                              std::vector<KeptLocal>* kept) {
  kept_fit_ = fit;
  kept_locals_ = fit_locals;
  kept_ = kept;
}

Routine RoutineBuilder::build(const lang::Function& f) {
  Body body;
  out_ = &body;
  frames_.back().function = &f;
  std::vector<Range> ranges;
  const Range element{0, static_cast<double>(context_.format.block - 1)};
  auto parameter = [&](size_t k, Scalar type, const Range& range) {
    Binding b;
    b.value = variable(new_variable(f.params[k].name, type));
    bind(f.params[k].name, b, f.params[k].place);
    ranges.push_back(range);
  };
  auto source = [&](size_t k) {
    Binding b;
    b.array = {Array::Kind::source, static_cast<int>(k)};
    bind(f.params[k].name, b, f.params[k].place);
  };
  auto refuse = [&](std::string_view form) {
    throw error_at(f.place, fmt::format("'{}' has {} parameters", f.name, f.params.size()), form);
  };
  const size_t count = f.params.size();
  if (role_ == Role::decode) {
    if (count != 1) refuse("write decode(i): the value of element i of a block");
    parameter(0, Scalar::i32, element);
  } else if (role_ == Role::code) {
    if (count != 1 && count != 2)
      refuse("write code(v) or code(v, i): the code that is stored for element i of value v");
    parameter(0, Scalar::f32, range_of_type(Scalar::f32));
    if (count == 2) {
      parameter(1, Scalar::i32, element);
    } else {
      new_variable("i", Scalar::i32);
      ranges.push_back(element);
    }
  } else {
    if (count != 1 && count != 2) refuse("write fit(x) or fit(x, w): x are the values, w their importance");
    for (size_t k = 0; k < count; ++k) source(k);
  }
  routine_.parameters = ranges.size();

  const bool gives = gives_result(f.body);
  if (role_ == Role::fit && gives)
    throw error_at(f.place, "'fit' assigns fields and gives no value", "drop the last expression");
  if (role_ != Role::fit && !gives) {
    throw error_at(f.place, fmt::format("'{}' gives no value", f.name), "end it with an expression");
  }
  const bool ended = statements(f.body, 0);
  if (role_ != Role::fit) {
    if (!ended) throw error_at(f.place, fmt::format("'{}' does not give a value on every path", f.name));
    if (results_.size() != 1) throw error_at(f.place, fmt::format("'{}' gives {} values", f.name, results_.size()));
    RoutineExpr value = results_[0];
    if (role_ == Role::decode) {
      value = convert_to(std::move(value), Scalar::f32, f.place);
    } else {
      const FieldType& type = context_.format.fields[context_.format.code_field].type;
      value = type.is_float ? convert_to(std::move(value), Scalar::f32, f.place)
                            : to_integer(std::move(value), type.register_type(), f.place);
    }
    routine_.result = std::move(value);
    routine_.has_result = true;
  }
  routine_.body = std::move(body);
  out_ = nullptr;
  check_indices(routine_, ranges);
  return std::move(routine_);
}

RoutineExpr RoutineBuilder::constant(const lang::Expr& e) {
  Body body;
  out_ = &body;
  RoutineExpr value = expression(e);
  out_ = nullptr;
  if (!is_constant(value) || !body.empty()) {
    throw error_at(e.place, "this must be known when the format is read",
                   "use numbers, format parameters and arithmetic on them");
  }
  return value;
}

int RoutineBuilder::new_variable(std::string_view name, Scalar type, int64_t extent) {
  routine_.variables.push_back({std::string(name), type, extent});
  untyped_array_.push_back(false);
  return routine_.variables.size() - 1;
}

RoutineExpr RoutineBuilder::variable(int slot) const {
  RoutineExpr e{RoutineExpr::Kind::variable, routine_.variables[slot].type};
  e.slot = slot;
  return e;
}

void RoutineBuilder::emit(RoutineStmt s) {
  LUMEN_CHECK(out_, "no place for statements");
  out_->push_back(std::move(s));
}

void RoutineBuilder::set(int slot, RoutineExpr value) {
  RoutineStmt s{RoutineStmt::Kind::set};
  s.slot = slot;
  s.value = std::move(value);
  emit(std::move(s));
}

RoutineExpr RoutineBuilder::in_variable(std::string_view name, RoutineExpr value) {
  if (is_constant(value) || value.kind == RoutineExpr::Kind::variable) return value;
  const int slot = new_variable(name, value.type);
  set(slot, std::move(value));
  return variable(slot);
}

void RoutineBuilder::spend(const Place& place, int64_t nodes) {
  nodes_ += nodes;
  steps_ += nodes * multiplier_;
  if (nodes_ > kMaxNodes) {
    throw error_at(place, fmt::format("the routine grows beyond {} operations after inlining", kMaxNodes),
                   "call fewer functions, or use loops");
  }
  if (steps_ > kMaxSteps) {
    throw error_at(place, fmt::format("the routine takes more than {:.0f} million steps", kMaxSteps / 1e6),
                   "search over fewer candidates");
  }
}

RoutineBuilder::Binding* RoutineBuilder::find(std::string_view name) {
  auto& scopes = frames_.back().scopes;
  for (size_t k = scopes.size(); k-- > 0;) {
    const auto found = scopes[k].find(name);
    if (found != scopes[k].end()) return &found->second;
  }
  return nullptr;
}

void RoutineBuilder::bind(const std::string& name, Binding b, const Place& place) {
  Scope& scope = frames_.back().scopes.back();
  if (scope.contains(name)) {
    throw error_at(place, fmt::format("'{}' is defined twice", name),
                   "choose another name, or assign without 'let' or 'var'");
  }
  const bool is_local = b.array.kind == Array::Kind::local || b.value.kind == RoutineExpr::Kind::variable;
  if (is_local && !frames_.back().is_function && frames_.back().scopes.size() == 1) {
    locals_[name] = b.array.kind == Array::Kind::local ? b.array.slot : b.value.slot;
  }
  scope[name] = std::move(b);
}

void RoutineBuilder::check_indices(const Routine& r, const std::vector<Range>& parameters) {
  RangeAnalysis analysis(context_.format.fields, context_.format.tables);
  std::map<int, Range> given;
  for (size_t k = 0; k < parameters.size(); ++k) given[k] = parameters[k];
  if (kept_) {
    for (const KeptLocal& kept : *kept_) {
      given[kept.code_variable] = range_of_type(r.variables[kept.code_variable].type);
    }
  }
  analysis.analyse(r, given);
  for (const PendingIndex& p : pending_) {
    const Range range = analysis.of(p.index);
    const int64_t length = array_length(p.array);
    const double last = length < 0 ? kExtent - 1 : length - 1;
    const bool first_only = range.low == 0 && range.high == 0;
    const bool inside =
        length < 0 ? first_only || (range.low >= 0 && range.high == last) : range.low >= 0 && range.high <= last;
    if (inside) continue;
    if (length < 0) {
      throw error_at(p.place, "this index is not proved to stay inside 0..len(x)",
                     "index x with a loop over 0..len(x)");
    }
    throw error_at(
        p.place,
        fmt::format("this index may be {:.0f}..{:.0f}, but there are {} entries", range.low, range.high, length),
        fmt::format("write clamp(index, 0, {}) if it cannot happen", length - 1));
  }
}

int RoutineBuilder::add_table(std::string name, Scalar type, std::vector<double> values, const Place& place) {
  auto& tables = context_.format.tables;
  for (size_t k = 0; k < tables.size(); ++k) {
    if (tables[k].name == name) return k;
  }
  if (tables.size() >= kMaxTables) throw error_at(place, fmt::format("a format uses at most {} tables", kMaxTables));
  tables.push_back({std::move(name), type, std::move(values)});
  return tables.size() - 1;
}

int RoutineBuilder::table_slot(const lang::Table& t) {
  constexpr size_t kMaxEntries = 1 << 16;
  for (size_t k = 0; k < context_.format.tables.size(); ++k) {
    if (context_.format.tables[k].name == t.name) return k;
  }
  const auto type = scalar_from_name(t.type.name);
  if (!type || *type == Scalar::boolean || *type == Scalar::f64 || scalar_bits(*type) > 32) {
    throw error_at(t.type.place, fmt::format("a table of '{}' is not possible", t.type.name),
                   "use f32 or i32 (or i8, u8, i16, u16)");
  }
  if (t.values.size() > kMaxEntries)
    throw error_at(t.place, fmt::format("a table has at most {} entries", kMaxEntries));
  const Scalar held = is_float(*type) ? Scalar::f32 : *type == Scalar::u32 ? Scalar::u32 : Scalar::i32;
  std::vector<double> values;
  for (const lang::ExprPtr& v : t.values) {
    const RoutineExpr value = constant_expression(context_, *v);
    if (is_float(*type)) {
      values.push_back(convert_to(value, Scalar::f32, v->place).real);
      continue;
    }
    if (is_float(value.type)) throw error_at(v->place, fmt::format("a table of {} holds whole numbers", t.type.name));
    if (wrap_to_scalar(*type, value.integer) != value.integer) {
      throw error_at(v->place, fmt::format("{} does not fit {}", value.integer, t.type.name));
    }
    values.push_back(value.integer);
  }
  return add_table(t.name, held, std::move(values), t.place);
}

RoutineExpr constant_expression(FormatContext& context, const lang::Expr& e) {
  return RoutineBuilder(context, RoutineBuilder::Role::decode, Level::tensor).constant(e);
}

int64_t constant_whole(FormatContext& context, const lang::Expr& e, std::string_view what) {
  const RoutineExpr value = constant_expression(context, e);
  if (!is_whole(value.type)) throw error_at(e.place, fmt::format("{} must be a whole number", what));
  return value.integer;
}

}  // namespace lumen::read
