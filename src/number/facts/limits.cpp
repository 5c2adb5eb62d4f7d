#include "number/facts/limits.h"

#include <algorithm>

#include "number/facts/typing.h"

namespace lumen {
namespace {

constexpr double kOfFunction = 24;                 // cost of exp etc. (polynomials)
constexpr double kOfField = 4;                     // cost of extracting bits from words
constexpr int64_t kMostUnrolled = 1024;            // elements
constexpr double kMostUnrolledOperations = 49152;  // of a block
constexpr double kLanes = 8;                       // share an operation of straight-line code, but no other

double operations_in(const RoutineExpr& e) {
  double sum = 0;
  for (const RoutineExpr& a : e.args) sum += operations_in(a);
  if (e.kind == RoutineExpr::Kind::field || e.kind == RoutineExpr::Kind::table) return sum + kOfField;
  if (e.kind != RoutineExpr::Kind::op) return sum;
  switch (e.op) {
    case ScalarOp::exp_:
    case ScalarOp::log_:
    case ScalarOp::sin_:
    case ScalarOp::cos_:
    case ScalarOp::tanh_:
    case ScalarOp::pow_:
      return sum + kOfFunction;
    default:
      return sum + 1;
  }
}

double operations_in(const std::vector<RoutineStmt>& body) {
  double sum = 0;
  for (const RoutineStmt& s : body) {
    sum += 1 + operations_in(s.value) + operations_in(s.index);
    const double inside = operations_in(s.body) + operations_in(s.otherwise);
    if (s.kind != RoutineStmt::Kind::loop) {
      sum += inside;
      continue;
    }
    const bool known = read::is_constant(s.from) && read::is_constant(s.to);
    const double trips = known ? static_cast<double>(std::max<int64_t>(0, s.to.integer - s.from.integer)) : 1;
    sum += (inside + 1) * trips / std::max<int64_t>(1, s.step);
  }
  return sum;
}

bool is_straight(const std::vector<RoutineStmt>& body) {
  return std::all_of(body.begin(), body.end(), [](const RoutineStmt& s) { return s.kind == RoutineStmt::Kind::set; });
}

double nodes_in(const std::vector<RoutineStmt>& body) {
  double sum = 0;
  for (const RoutineStmt& s : body)
    sum += 1 + operations_in(s.value) + operations_in(s.index) + nodes_in(s.body) + nodes_in(s.otherwise);
  return sum;
}

}  // namespace

double operations_of(const Routine& r) {
  return operations_in(r.body) + (r.has_result ? operations_in(r.result) : 0);
}

bool unrolls(const Format& f) {
  if (f.block > kMostUnrolled) return false;
  const double each = nodes_in(f.decode.body) + operations_in(f.decode.result);
  const double lanes = is_straight(f.decode.body) ? 1 : kLanes;
  return f.block * each * lanes <= kMostUnrolledOperations;
}

}  // namespace lumen
