// Statements of routines. A result inside a branch makes the rest of the body the other branch, so that every routine
// becomes structured code with one end. Proved by tests/number/reader_test.cpp.
#include "base/check.h"
#include "number/read/routine_builder.h"

namespace lumen::read {
namespace {

constexpr int64_t kMaxArray = 1 << 17;

}  // namespace

bool RoutineBuilder::gives_result(const std::vector<lang::Stmt>& list) const {
  for (const lang::Stmt& s : list) {
    if (s.kind == lang::StmtKind::result) return true;
    if (s.kind == lang::StmtKind::branch && (gives_result(s.body) || gives_result(s.otherwise))) return true;
  }
  return false;
}

bool RoutineBuilder::statements(const std::vector<lang::Stmt>& list, size_t first) {
  for (size_t k = first; k < list.size(); ++k) {
    const lang::Stmt& s = list[k];
    spend(s.place);
    switch (s.kind) {
      case lang::StmtKind::let:
        let(s);
        break;
      case lang::StmtKind::var:
        var(s);
        break;
      case lang::StmtKind::assign:
      case lang::StmtKind::define:
        assign(s);
        break;
      case lang::StmtKind::loop:
        loop(s);
        break;
      case lang::StmtKind::branch:
        if (gives_result(s.body) || gives_result(s.otherwise)) return branch(s, list, k + 1);
        branch(s, list, list.size());
        break;
      case lang::StmtKind::result:
        if (k + 1 < list.size()) {
          throw error_at(list[k + 1].place, "nothing can follow a result", "a result ends its block");
        }
        result(s);
        return true;
    }
  }
  return false;
}

// `count` values: of one call that returns several, or of one expression.
std::vector<RoutineExpr> RoutineBuilder::values_of(const lang::Expr& e, size_t count, const Place& place) {
  std::vector<RoutineExpr> values;
  if (count > 1) {
    if (e.kind != lang::ExprKind::call) {
      throw error_at(e.place, fmt::format("{} names need {} values", count, count),
                     "call a function that gives several");
    }
    values = call(e);
  } else {
    values.push_back(expression(e));
  }
  if (values.size() != count) {
    throw error_at(place, fmt::format("{} values for {} names", values.size(), count));
  }
  return values;
}

void RoutineBuilder::let(const lang::Stmt& s) {
  std::vector<RoutineExpr> values = values_of(*s.value, s.names.size(), s.place);
  for (size_t k = 0; k < values.size(); ++k) {
    Binding b;
    // Constants stay constants; other values are computed once, here.
    if (is_constant(values[k])) {
      b.value = std::move(values[k]);
    } else {
      const int slot = new_variable(s.names[k], values[k].type);
      set(slot, std::move(values[k]));
      b.value = variable(slot);
    }
    bind(s.names[k], std::move(b), s.place);
  }
}

void RoutineBuilder::var(const lang::Stmt& s) {
  LUMEN_CHECK(s.names.size() == 1, "var of {} names", s.names.size());
  Binding b;
  b.writable = true;
  if (!s.extent) {
    RoutineExpr value = to_run_time(expression(*s.value));
    const int slot = new_variable(s.names[0], value.type);
    set(slot, std::move(value));
    b.value = variable(slot);
    bind(s.names[0], std::move(b), s.place);
    return;
  }
  const RoutineExpr extent = expression(*s.extent);
  if (!is_constant(extent) || !is_whole(extent.type)) {
    throw error_at(s.extent->place, "the size of an array must be known when the format is read");
  }
  if (extent.integer < 1 || extent.integer > kMaxArray) {
    throw error_at(s.extent->place,
                   fmt::format("an array of {} entries (1 to {} are possible)", extent.integer, kMaxArray));
  }
  spend(s.place, extent.integer / 16);
  const int slot = new_variable(s.names[0], Scalar::f32, extent.integer);
  untyped_array_[slot] = true;
  b.array = {Array::Kind::local, slot};
  bind(s.names[0], b, s.place);
  if (!s.value) return;
  RoutineExpr value = in_variable("start", to_run_time(expression(*s.value)));
  routine_.variables[slot].type = value.type;
  untyped_array_[slot] = false;
  const int counter = new_variable("j", Scalar::i32);
  RoutineStmt fill{RoutineStmt::Kind::set_element};
  fill.slot = slot;
  fill.index = variable(counter);
  fill.value = std::move(value);
  RoutineStmt l{RoutineStmt::Kind::loop};
  l.slot = counter;
  l.from = to_run_time(integer_constant(0));
  l.to = to_run_time(extent);
  l.body.push_back(std::move(fill));
  spend(s.place, extent.integer);
  emit(std::move(l));
}

void RoutineBuilder::assign(const lang::Stmt& s) {
  std::vector<RoutineExpr> values = values_of(*s.value, s.targets.size(), s.place);
  if (values.size() > 1) {
    for (RoutineExpr& v : values) v = in_variable("value", to_run_time(std::move(v)));
  }
  for (size_t k = 0; k < values.size(); ++k) assign_to(*s.targets[k], std::move(values[k]), *s.value);
}

void RoutineBuilder::assign_to(const lang::Expr& target, RoutineExpr value, const lang::Expr& source) {
  const bool indexed = target.kind == lang::ExprKind::index;
  if (!indexed && target.kind != lang::ExprKind::name) throw error_at(target.place, "this cannot be assigned to");
  if (indexed && target.args.size() != 2) throw error_at(target.place, "arrays of a format have one subscript");
  if (target.outside) throw error_at(target.outside->place, "arrays of a format have no padding value");
  const lang::Expr& named = indexed ? *target.args[0] : target;

  if (Binding* b = find(named.text); b && b->array.kind == Array::Kind::none) {
    if (indexed) throw error_at(target.place, fmt::format("'{}' is one number and has no entries", named.text));
    if (!b->writable) {
      throw error_at(target.place, fmt::format("'{}' cannot be changed", named.text),
                     fmt::format("declare it with 'var {} = ...'", named.text));
    }
    const Scalar type = b->value.type;
    if (is_float(value.type) && is_whole(type)) {
      throw error_at(source.place, fmt::format("'{}' is {} and cannot take an f32", named.text, scalar_name(type)),
                     "give it a first value with a point (0.0), or write int(rint(x))");
    }
    set(b->value.slot, convert_to(std::move(value), type, source.place));
    return;
  }
  const Array array = array_of(named);
  if (!indexed && array_length(array) != 1) {
    throw error_at(target.place, fmt::format("'{}' has several entries", named.text),
                   fmt::format("write {}[j] = ...", named.text));
  }
  RoutineExpr index = indexed ? expression(*target.args[1]) : integer_constant(0);
  const Place& index_place = indexed ? target.args[1]->place : target.place;
  const size_t slot = array.slot;
  RoutineStmt s{RoutineStmt::Kind::set_element};
  s.slot = array.slot;
  if (array.kind == Array::Kind::local) {
    if (untyped_array_[slot]) {
      value = to_run_time(std::move(value));
      routine_.variables[slot].type = value.type;
      untyped_array_[slot] = false;
    }
    const Scalar type = routine_.variables[slot].type;
    if (is_float(value.type) && is_whole(type)) {
      throw error_at(source.place, fmt::format("'{}' holds {} and cannot take an f32", named.text, scalar_name(type)),
                     "store f32 in it from the first, or write int(rint(x))");
    }
    s.value = convert_to(std::move(value), type, source.place);
  } else if (array.kind == Array::Kind::field) {
    const Field& field = context_.format.fields[slot];
    if (role_ != Role::fit || field.level != level_) {
      throw error_at(target.place, fmt::format("field '{}' cannot be assigned here", field.name),
                     "fields are assigned by the fit of their own level");
    }
    s.kind = RoutineStmt::Kind::set_field;
    s.value = field.type.is_float ? convert_to(std::move(value), Scalar::f32, source.place)
                                  : to_integer(std::move(value), field.type.register_type(), source.place);
  } else {
    throw error_at(target.place, fmt::format("'{}' cannot be changed", named.text));
  }
  s.index = index_into(array, std::move(index), index_place);
  emit(std::move(s));
}

void RoutineBuilder::loop(const lang::Stmt& s) {
  if (gives_result(s.body))
    throw error_at(s.place, "a loop cannot give a result", "store it in a var and return it after the loop");
  const Bounds b = bounds(s.from, s.to, s.place);
  int64_t step = 1;
  if (s.step) {
    const RoutineExpr value = expression(*s.step);
    if (!is_constant(value) || !is_whole(value.type) || value.integer < 1) {
      throw error_at(s.step->place, "the step of a loop is a whole number above 0, known when the format is read");
    }
    step = value.integer;
  }
  if (b.trips && *b.trips <= 0) return;
  const int slot = new_variable(s.names[0], Scalar::i32);
  RoutineStmt l{RoutineStmt::Kind::loop};
  l.slot = slot;
  l.from = b.from;
  l.to = b.to;
  l.step = step;
  Body* const outer = out_;
  const double before = multiplier_;
  if (b.trips) {
    multiplier_ *= (*b.trips + step - 1) / step;
  } else if (++extent_loops_ > 1) {
    throw error_at(s.place, "a loop over len(x) cannot be inside another one");
  }
  out_ = &l.body;
  frames_.back().scopes.emplace_back();
  Binding binding;
  binding.value = variable(slot);
  bind(s.names[0], binding, s.place);
  statements(s.body, 0);
  frames_.back().scopes.pop_back();
  out_ = outer;
  if (!b.trips) --extent_loops_;
  multiplier_ = before;
  emit(std::move(l));
}

bool RoutineBuilder::branch(const lang::Stmt& s, const std::vector<lang::Stmt>& list, size_t next) {
  const RoutineExpr condition = to_boolean(expression(*s.value), s.value->place);
  if (is_constant(condition)) {
    frames_.back().scopes.emplace_back();
    const bool ended = statements(condition.integer != 0 ? s.body : s.otherwise, 0);
    frames_.back().scopes.pop_back();
    return ended || statements(list, next);
  }
  if (gives_result(s.body) || gives_result(s.otherwise)) results_in_variables_ = true;
  RoutineStmt b{RoutineStmt::Kind::branch};
  b.value = condition;
  Body* const outer = out_;
  auto arm = [&](const std::vector<lang::Stmt>& body, Body& into) {
    out_ = &into;
    frames_.back().scopes.emplace_back();
    bool ended = statements(body, 0);
    frames_.back().scopes.pop_back();
    if (!ended && next < list.size()) {
      frames_.back().scopes.emplace_back();
      ended = statements(list, next);
      frames_.back().scopes.pop_back();
    }
    out_ = outer;
    return ended;
  };
  const bool first = arm(s.body, b.body);
  const bool second = arm(s.otherwise, b.otherwise);
  emit(std::move(b));
  return first && second;
}

void RoutineBuilder::result(const lang::Stmt& s) {
  std::vector<RoutineExpr> values;
  if (s.values.size() == 1 && s.values[0]->kind == lang::ExprKind::call) {
    values = call(*s.values[0]);  // may return several
  } else {
    for (const lang::ExprPtr& v : s.values) values.push_back(expression(*v));
  }
  if (!results_in_variables_) {
    results_ = std::move(values);
    return;
  }
  if (result_variables_.empty()) {
    for (RoutineExpr& v : values) {
      v = to_run_time(std::move(v));
      result_variables_.push_back(new_variable("result", v.type));
      results_.push_back(variable(result_variables_.back()));
    }
  }
  if (values.size() != result_variables_.size()) {
    throw error_at(s.place, fmt::format("{} values here, {} elsewhere", values.size(), result_variables_.size()));
  }
  for (size_t k = 0; k < values.size(); ++k) {
    set(result_variables_[k], convert_to(std::move(values[k]), results_[k].type, s.place));
  }
}

}  // namespace lumen::read
