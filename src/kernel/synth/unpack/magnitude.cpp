#include "kernel/synth/unpack/magnitude.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace lumen::synth {
namespace {

using Kind = RoutineExpr::Kind;

// An expression of x[counter] and constants alone.
bool is_of_value(const RoutineExpr& e, int counter) {
  if (e.kind == Kind::constant) return true;
  if (e.kind == Kind::op)
    return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return is_of_value(a, counter); });
  return e.kind == Kind::source && e.slot == 0 && e.args[0].kind == Kind::variable && e.args[0].slot == counter;
}

bool reads_values(const RoutineExpr& e) {
  return e.kind == Kind::source || std::ranges::any_of(e.args, reads_values);
}

// Collects loops and statements that read values, of a body and of those nested in it.
void collect(const std::vector<RoutineStmt>& body, std::vector<const RoutineStmt*>& out) {
  for (const RoutineStmt& s : body) {
    if (s.kind == RoutineStmt::Kind::loop || reads_values(s.value) || reads_values(s.index)) out.push_back(&s);
    if (s.kind == RoutineStmt::Kind::loop) continue;
    collect(s.body, out);
    collect(s.otherwise, out);
  }
}

}  // namespace

bool is_magnitude_loop(const RoutineStmt& s) {
  if (s.kind != RoutineStmt::Kind::loop || s.step != 1 || s.body.size() != 1) return false;
  if (s.from.kind != Kind::constant || s.from.integer != 0) return false;
  const RoutineStmt& set = s.body[0];
  if (set.kind != RoutineStmt::Kind::set || set.value.kind != Kind::op || set.value.op != ScalarOp::max_) return false;
  const RoutineExpr &so_far = set.value.args[0], &value = set.value.args[1];
  return so_far.kind == Kind::variable && so_far.slot == set.slot && value.type == Scalar::f32 &&
         value.kind == Kind::op && value.op == ScalarOp::abs_ && is_of_value(value, s.slot) && reads_values(value);
}

const RoutineStmt* shared_loop(const Routine& fit, int64_t count) {
  std::vector<const RoutineStmt*> found;
  collect(fit.body, found);
  if (found.size() != 1 || !is_magnitude_loop(*found[0])) return nullptr;
  const RoutineExpr& to = found[0]->to;
  const bool all = count == kAllValues ? to.kind == Kind::extent : to.kind == Kind::constant && to.integer == count;
  return all ? found[0] : nullptr;
}

MagnitudeLoop magnitude_loop(const RoutineStmt& s) {
  LUMEN_CHECK(is_magnitude_loop(s));
  return {s.body[0].slot, &s.body[0].value.args[1]};
}

}  // namespace lumen::synth
