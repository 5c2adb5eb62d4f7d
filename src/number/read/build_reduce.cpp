// Reductions: sum(j) e and similar ones become loops; short ones inside decode and code are unrolled, so that these
// stay straight-line code. Proved by tests/number/reader_test.cpp.
#include <limits>

#include "base/check.h"
#include "number/read/routine_builder.h"

namespace lumen::read {
namespace {

constexpr int64_t kMaxTrips = int64_t{1} << 24;
constexpr int64_t kMaxUnroll = 16;

}  // namespace

RoutineBuilder::Bounds RoutineBuilder::bounds(const lang::ExprPtr& from, const lang::ExprPtr& to, const Place& place) {
  Bounds b;
  b.from = expression(*from);
  b.to = expression(*to);
  if (!is_constant(b.from) || !is_whole(b.from.type)) {
    throw error_at(from->place, "a loop starts at a number known when the format is read");
  }
  if (b.to.kind == RoutineExpr::Kind::extent) {
    if (b.from.integer < 0) throw error_at(from->place, "a loop over len(x) cannot start below 0");
  } else {
    if (!is_constant(b.to) || !is_whole(b.to.type)) {
      throw error_at(to->place, "a loop ends at a number known when the format is read, or at len(x)");
    }
    if (b.from.integer < INT32_MIN || b.to.integer > INT32_MAX || b.to.integer - b.from.integer > kMaxTrips) {
      throw error_at(place, fmt::format("a loop over {}..{} is too long", b.from.integer, b.to.integer));
    }
    b.trips = std::max<int64_t>(0, b.to.integer - b.from.integer);
  }
  b.from = to_run_time(std::move(b.from));
  b.to = to_run_time(std::move(b.to));
  return b;
}

// All arrays indexed by exactly this variable.
void RoutineBuilder::arrays_indexed_by(const lang::Expr& e, const std::string& variable_name,
                                       std::vector<Array>& found) {
  if (e.kind == lang::ExprKind::index && e.args.size() == 2 && e.args[1] && e.args[1]->kind == lang::ExprKind::name &&
      e.args[1]->text == variable_name) {
    found.push_back(array_of(*e.args[0]));
  }
  for (const lang::ExprPtr& a : e.args) {
    if (a) arrays_indexed_by(*a, variable_name, found);
  }
}

RoutineBuilder::Bounds RoutineBuilder::bounds_of(const lang::Expr& e, size_t k) {
  if (e.ranges[k].first) return bounds(e.ranges[k].first, e.ranges[k].second, e.place);
  std::vector<Array> arrays;
  arrays_indexed_by(*e.args[0], e.vars[k], arrays);
  if (arrays.empty()) {
    throw error_at(e.place, fmt::format("the range of '{}' does not follow from its use", e.vars[k]),
                   fmt::format("write {}({} in 0..n)", e.text, e.vars[k]));
  }
  const int64_t length = array_length(arrays[0]);
  for (const Array& a : arrays) {
    if (array_length(a) != length) {
      throw error_at(e.place,
                     fmt::format("'{}' runs over arrays of {} and {} entries", e.vars[k], length, array_length(a)),
                     fmt::format("write {}({} in 0..n)", e.text, e.vars[k]));
    }
  }
  Bounds b;
  b.from = to_run_time(integer_constant(0));
  b.to = to_run_time(length_of(arrays[0]));
  if (length >= 0) b.trips = length;
  return b;
}

RoutineExpr RoutineBuilder::identity(const std::string& what, Scalar type) const {
  const bool low = what == "max" || what == "argmax";
  const bool high = what == "min" || what == "argmin";
  RoutineExpr e{RoutineExpr::Kind::constant, type};
  if (is_float(type)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    e.real = low ? -kInfinity : high ? kInfinity : 0;
  } else {
    const Range all = range_of_type(type);
    e.integer = low ? static_cast<int64_t>(all.low) : high ? static_cast<int64_t>(all.high) : what == "all" ? 1 : 0;
  }
  return e;
}

RoutineExpr RoutineBuilder::joined(const lang::Expr& e, RoutineExpr so_far, RoutineExpr value) {
  ScalarOp op = ScalarOp::add_;
  if (e.text == "max") op = ScalarOp::max_;
  if (e.text == "min") op = ScalarOp::min_;
  if (e.text == "any") op = ScalarOp::or_;
  if (e.text == "all") op = ScalarOp::and_;
  return make_op(op, {std::move(so_far), std::move(value)});
}

// sum(j in 0..4) e as e(0) + e(1) + ...; nullopt when it is long or needs its own statements.
std::optional<RoutineExpr> RoutineBuilder::unrolled(const lang::Expr& e) {
  if (role_ == Role::fit || e.vars.size() != 1 || e.text == "argmax" || e.text == "argmin") return std::nullopt;
  const Bounds b = bounds_of(e, 0);
  if (!b.trips || *b.trips < 1 || *b.trips > kMaxUnroll) return std::nullopt;
  std::optional<RoutineExpr> total;
  for (int64_t k = 0; k < *b.trips; ++k) {
    frames_.back().scopes.emplace_back();
    Binding binding;
    binding.value = integer_constant(b.from.integer + k);
    bind(e.vars[0], binding, e.place);
    RoutineExpr value = expression(*e.args[0]);
    frames_.back().scopes.pop_back();
    const bool logical = e.text == "any" || e.text == "all";
    if (logical)
      value = to_boolean(std::move(value), e.args[0]->place);
    else if (value.type == Scalar::boolean)
      value = make_cast(ScalarOp::cast_, Scalar::i32, std::move(value));
    if (!total) {
      total = std::move(value);
      continue;
    }
    if (!logical) unify(*total, value, e.place);
    total = joined(e, std::move(*total), std::move(value));
  }
  if (e.text == "mean")
    total = binary("/", convert_to(std::move(*total), Scalar::f32, e.place), integer_constant(*b.trips), e.place);
  return total;
}

RoutineExpr RoutineBuilder::reduce(const lang::Expr& e) {
  if (auto straight = unrolled(e)) return *straight;
  const bool finds_place = e.text == "argmax" || e.text == "argmin";
  if (finds_place && e.vars.size() != 1) throw error_at(e.place, fmt::format("{} runs over one variable", e.text));

  // The innermost body first: its type is the accumulator's.
  std::vector<Bounds> limits;
  std::vector<int> slots;
  const double before = multiplier_;
  int extents = 0;
  frames_.back().scopes.emplace_back();
  for (size_t k = 0; k < e.vars.size(); ++k) {
    limits.push_back(bounds_of(e, k));
    if (limits[k].trips) {
      multiplier_ *= *limits[k].trips;
    } else {
      ++extents;
      if (++extent_loops_ > 1) throw error_at(e.place, "a loop over len(x) cannot be inside another one");
    }
    slots.push_back(new_variable(e.vars[k], Scalar::i32));
    Binding binding;
    binding.value = variable(slots[k]);
    bind(e.vars[k], binding, e.place);
  }
  Body inner;
  Body* const outer = out_;
  out_ = &inner;
  RoutineExpr value = to_run_time(expression(*e.args[0]));
  if (e.text == "any" || e.text == "all") {
    value = to_boolean(std::move(value), e.args[0]->place);
  } else if (value.type == Scalar::boolean) {
    value = make_cast(ScalarOp::cast_, Scalar::i32, std::move(value));
  }
  if (e.text == "mean") value = convert_to(std::move(value), Scalar::f32, e.place);
  const Scalar type = value.type;
  const int accumulator = new_variable(e.text, type);
  const int place = finds_place ? new_variable("at", Scalar::i32) : -1;
  if (finds_place) {
    value = in_variable("candidate", std::move(value));
    RoutineExpr better = e.text == "argmax" ? make_op(ScalarOp::lt_, {variable(accumulator), value})
                                            : make_op(ScalarOp::lt_, {value, variable(accumulator)});
    RoutineStmt s{RoutineStmt::Kind::branch};
    s.value = std::move(better);
    out_ = &s.body;
    set(accumulator, value);
    set(place, variable(slots[0]));
    out_ = &inner;
    emit(std::move(s));
  } else {
    set(accumulator, joined(e, variable(accumulator), std::move(value)));
  }
  out_ = outer;
  frames_.back().scopes.pop_back();
  multiplier_ = before;
  extent_loops_ -= extents;

  set(accumulator, identity(e.text, type));
  if (finds_place) set(place, limits[0].from);
  for (size_t k = e.vars.size(); k-- > 0;) {
    RoutineStmt s{RoutineStmt::Kind::loop};
    s.slot = slots[k];
    s.from = limits[k].from;
    s.to = limits[k].to;
    s.body = std::move(inner);
    inner.clear();
    inner.push_back(std::move(s));
  }
  emit(std::move(inner[0]));
  if (finds_place) return variable(place);
  if (e.text != "mean") return variable(accumulator);
  RoutineExpr count = float_constant(1);
  for (const Bounds& b : limits) {
    RoutineExpr trips = b.trips ? integer_constant(*b.trips) : binary("-", b.to, b.from, e.place);
    count = binary("*", std::move(count), std::move(trips), e.place);
  }
  return binary("/", variable(accumulator), std::move(count), e.place);
}

}  // namespace lumen::read
