#include "number/read/tabulate.h"

#include <algorithm>
#include <cmath>

#include "number/facts/limits.h"
#include "number/facts/range.h"
#include "number/facts/straight.h"
#include "number/facts/typing.h"

namespace lumen::read {
namespace {

using Kind = RoutineExpr::Kind;

constexpr double kMostEntries = 1024;

bool is_function(const RoutineExpr& e) {
  if (e.kind != Kind::op) return false;
  switch (e.op) {
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
}

bool has_function(const RoutineExpr& e) {
  return is_function(e) || std::any_of(e.args.begin(), e.args.end(), has_function);
}

bool has_field(const RoutineExpr& e) {
  return e.kind == Kind::field || std::any_of(e.args.begin(), e.args.end(), has_field);
}

class Tabulation {
 public:
  explicit Tabulation(Format& f) : format_(f) {}

  RoutineExpr rewrite(const RoutineExpr& e) {
    if (!has_function(e)) return e;
    const RoutineExpr* entry = nullptr;
    if (reads_one(e, &entry) && entry)
      if (auto looked_up = table_of(e, *entry)) return *std::move(looked_up);
    RoutineExpr out = e;
    for (RoutineExpr& a : out.args) a = rewrite(a);
    return out;
  }
  bool changed() const { return changed_; }

 private:
  Range range_of(const RoutineExpr& e) const {
    RangeAnalysis ranges(format_.fields, format_.tables);
    ranges.variables = {Range{0, static_cast<double>(format_.block - 1)}};
    return ranges.of(e);
  }
  bool is_small(const RoutineExpr& e) const {
    if (e.type != Scalar::i32) return false;
    const Range r = range_of(e);
    return !r.empty() && r.high - r.low < kMostEntries;
  }

  // Whether e depends only on one integer with few values: an entry of a field, or an expression of a wider one.
  bool reads_one(const RoutineExpr& e, const RoutineExpr** entry) const {
    if (*entry && same_expression(**entry, e)) return true;
    if (e.kind == Kind::variable) return false;
    const bool small_field = e.kind == Kind::field && is_small(e);
    const bool small_part = e.kind == Kind::op && has_field(e) && !has_function(e) && is_small(e) && !small_below(e);
    if (small_field || small_part) {
      if (*entry) return false;
      *entry = &e;
      return true;
    }
    if (e.kind == Kind::field) return false;
    return std::all_of(e.args.begin(), e.args.end(), [&](const RoutineExpr& a) { return reads_one(a, entry); });
  }
  bool small_below(const RoutineExpr& e) const {
    return std::any_of(e.args.begin(), e.args.end(), [&](const RoutineExpr& a) {
      return (has_field(a) && is_small(a)) || (a.kind != Kind::field && small_below(a));
    });
  }

  // e with the entry replaced by this value: a constant.
  RoutineExpr at(const RoutineExpr& e, const RoutineExpr& entry, int64_t value) const {
    if (same_expression(e, entry)) {
      RoutineExpr number{Kind::constant, e.type};
      number.integer = value;
      return number;
    }
    if (e.kind == Kind::constant) return e;
    std::vector<RoutineExpr> args;
    for (const RoutineExpr& a : e.args) args.push_back(at(a, entry, value));
    if (e.kind == Kind::table) {
      const auto& values = format_.tables[e.slot].values;
      const double x = values[args[0].integer];
      RoutineExpr number{Kind::constant, e.type};
      number.real = is_float(e.type) ? x : 0;
      number.integer = is_float(e.type) ? 0 : static_cast<int64_t>(x);
      return number;
    }
    if (scalar_op_info(e.op).result == "cast") return make_cast(e.op, e.type, std::move(args[0]));
    return make_op(e.op, std::move(args));
  }

  std::optional<RoutineExpr> table_of(const RoutineExpr& e, const RoutineExpr& entry) {
    const bool floats = e.type == Scalar::f32;
    if (!floats && e.type != Scalar::i32) return std::nullopt;
    const Range range = range_of(entry);
    const auto low = static_cast<int64_t>(range.low);
    FormatTable table{fmt::format("values.{}", format_.tables.size()), e.type, {}};
    for (int64_t value = low; value <= static_cast<int64_t>(range.high); ++value) {
      const RoutineExpr v = at(e, entry, value);
      if (!is_constant(v) || (floats && std::isnan(v.real))) return std::nullopt;
      table.values.push_back(floats ? v.real : v.integer);
    }
    RoutineExpr index = entry;
    if (low != 0) {
      RoutineExpr first{Kind::constant, entry.type};
      first.integer = low;
      index = make_op(ScalarOp::sub_, {std::move(index), std::move(first)});
    }
    RoutineExpr out{Kind::table, e.type};
    out.slot = format_.tables.size();
    out.args.push_back(std::move(index));
    format_.tables.push_back(std::move(table));
    changed_ = true;
    return out;
  }

  Format& format_;
  bool changed_ = false;
};

}  // namespace

void tabulate(Format& f) {
  constexpr double kGrowth = 2;  // bound on recomputation of shared values after substitution
  const auto straight = straight_line(f.decode);
  if (!straight || !has_function(*straight)) return;
  const size_t tables = f.tables.size();
  Tabulation tabulation(f);
  Routine looked_up = f.decode;
  looked_up.body.clear();
  looked_up.variables.resize(looked_up.parameters);
  looked_up.result = tabulation.rewrite(*straight);
  if (tabulation.changed() && operations_of(looked_up) <= kGrowth * operations_of(f.decode)) {
    f.decode = std::move(looked_up);
  } else {
    f.tables.resize(tables);
  }
}

}  // namespace lumen::read
