#include "number/codec/code_line.h"

#include <algorithm>
#include <map>

#include "number/facts/facts.h"
#include "number/facts/straight.h"
#include "number/facts/typing.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;

bool reads_arrays(const RoutineExpr& e) {
  return e.kind == Kind::element || std::any_of(e.args.begin(), e.args.end(), reads_arrays);
}

// Translates an expression of `code` to `decode`, whose only variable is i; v has no counterpart there.
RoutineExpr as_of_decode(RoutineExpr e) {
  if (e.kind == Kind::variable) e.slot = e.slot == 1 ? 0 : -1;
  for (RoutineExpr& a : e.args) a = as_of_decode(std::move(a));
  return e;
}

bool is_zero(const RoutineExpr& e) {
  return e.kind == Kind::constant && (is_float(e.type) ? e.real == 0 : e.integer == 0);
}

// Removes arrays from selections, in the branch taken when the scale is 0.
void drop_arrays(RoutineExpr& e, const RoutineExpr& scale) {
  for (RoutineExpr& a : e.args) drop_arrays(a, scale);
  if (e.kind != Kind::op || e.op != ScalarOp::select_ || !reads_arrays(e.args[1])) return;
  const RoutineExpr& condition = e.args[0];
  if (condition.kind != Kind::op || condition.op != ScalarOp::eq_ || !is_zero(condition.args[1])) return;
  if (!read::same_expression(as_of_decode(condition.args[0]), scale)) return;
  RoutineExpr zero{Kind::constant, e.args[1].type};
  e.args[1] = std::move(zero);
}

}  // namespace

std::optional<RoutineExpr> code_line(const Format& f) {
  if (!f.code || f.code_field < 0) return std::nullopt;
  std::map<int, RoutineExpr> given;
  bool arrays = false;
  for (const KeptLocal& k : f.kept) {
    const RoutineVariable& local = f.code->variables[k.code_variable];
    if (k.field < 0 && local.extent == 0) return std::nullopt;
    if (local.extent > 0) {
      RoutineExpr read{Kind::element, local.type};
      read.slot = k.code_variable;
      given[k.code_variable] = std::move(read);
      arrays = true;
      continue;
    }
    RoutineExpr read{Kind::field, f.fields[k.field].type.register_type()};
    read.slot = k.field;
    read.args.push_back(RoutineExpr{Kind::constant, Scalar::i32});
    given[k.code_variable] = std::move(read);
  }
  std::optional<RoutineExpr> code = straight_line(*f.code, given);
  if (!code || !arrays) return code;
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || !facts.scaled->scale) return std::nullopt;
  drop_arrays(*code, *facts.scaled->scale);
  if (reads_arrays(*code)) return std::nullopt;
  return code;
}

}  // namespace lumen
