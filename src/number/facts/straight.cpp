// Substitution, evaluation and printing of routine expressions. Proved by tests/number/facts/facts_test.cpp.
#include "number/facts/straight.h"

#include <map>

#include "base/check.h"
#include "number/facts/typing.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;

class Substitution {
 public:
  Substitution(const Routine& r, const std::map<int, RoutineExpr>& given) : routine_(r), given_(given) {}

  std::optional<RoutineExpr> result() {
    if (!routine_.has_result) return std::nullopt;
    State state = given_;
    if (!run(routine_.body, state)) return std::nullopt;
    RoutineExpr e;
    if (!replace(routine_.result, state, e)) return std::nullopt;
    return e;
  }

 private:
  static constexpr int64_t kMaxNodes = 20'000;
  using State = std::map<int, RoutineExpr>;

  bool run(const std::vector<RoutineStmt>& body, State& state) {
    for (const RoutineStmt& s : body) {
      if (s.kind == RoutineStmt::Kind::set) {
        RoutineExpr value;
        if (!replace(s.value, state, value)) return false;
        state[s.slot] = std::move(value);
      } else if (s.kind == RoutineStmt::Kind::branch) {
        if (!branch(s, state)) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  bool branch(const RoutineStmt& s, State& state) {
    RoutineExpr condition;
    if (!replace(s.value, state, condition)) return false;
    State first = state, second = state;
    if (!run(s.body, first) || !run(s.otherwise, second)) return false;
    for (auto& [slot, value] : first) {
      const auto other = second.find(slot);
      // Set in one branch only: later code cannot depend on it. (A value set before is in both states.)
      if (other == second.end()) continue;
      if (read::same_expression(value, other->second)) {
        state[slot] = value;
        continue;
      }
      if (!count(condition)) return false;
      state[slot] = read::make_op(ScalarOp::select_, {condition, value, other->second});
    }
    return true;
  }

  bool count(const RoutineExpr& e) {
    if (++nodes_ > kMaxNodes) return false;
    for (const RoutineExpr& a : e.args) {
      if (!count(a)) return false;
    }
    return true;
  }

  bool replace(const RoutineExpr& e, const State& state, RoutineExpr& into) {
    if (++nodes_ > kMaxNodes) return false;
    if (e.kind == Kind::element) {
      const auto found = given_.find(e.slot);
      if (found != given_.end()) into = found->second;
      return found != given_.end();
    }
    if (e.kind == Kind::source || e.kind == Kind::extent) return false;
    if (e.kind == Kind::variable) {
      if (e.slot < routine_.parameters) {
        into = e;
        return true;
      }
      const auto found = state.find(e.slot);
      if (found == state.end() || !count(found->second)) return false;
      into = found->second;
      return true;
    }
    std::vector<RoutineExpr> args(e.args.size());
    for (size_t k = 0; k < args.size(); ++k) {
      if (!replace(e.args[k], state, args[k])) return false;
    }
    into = e;
    into.args = std::move(args);
    return true;
  }

  const Routine& routine_;
  const std::map<int, RoutineExpr>& given_;
  int64_t nodes_ = 0;
};

std::string_view symbol(ScalarOp op) {
  switch (op) {
    case ScalarOp::add_:
      return "+";
    case ScalarOp::sub_:
      return "-";
    case ScalarOp::mul_:
      return "*";
    case ScalarOp::div_:
      return "/";
    case ScalarOp::rem_:
      return "%";
    case ScalarOp::and_:
      return "&";
    case ScalarOp::or_:
      return "|";
    case ScalarOp::xor_:
      return "^";
    case ScalarOp::shl_:
      return "<<";
    case ScalarOp::shr_:
      return ">>";
    case ScalarOp::lt_:
      return "<";
    case ScalarOp::le_:
      return "<=";
    case ScalarOp::eq_:
      return "==";
    case ScalarOp::ne_:
      return "!=";
    default:
      return "";
  }
}

}  // namespace

std::optional<RoutineExpr> straight_line(const Routine& r, const std::map<int, RoutineExpr>& given) {
  return Substitution(r, given).result();
}

ScalarValue evaluate_expression(const Format& f, const RoutineExpr& e, const std::vector<ScalarValue>& variables,
                                const std::function<double(int, int64_t)>& field) {
  auto typed = [&](double value) {
    return is_float(e.type) ? ScalarValue{value, 0} : ScalarValue{0, static_cast<int64_t>(value)};
  };
  switch (e.kind) {
    case Kind::constant:
      return {e.real, e.integer};
    case Kind::variable:
      return variables[e.slot];
    case Kind::field:
      return typed(field(e.slot, evaluate_expression(f, e.args[0], variables, field).integer));
    case Kind::table: {
      const int64_t index = evaluate_expression(f, e.args[0], variables, field).integer;
      return typed(f.tables[e.slot].values[index]);
    }
    case Kind::op: {
      ScalarValue args[3];
      for (size_t k = 0; k < e.args.size(); ++k) args[k] = evaluate_expression(f, e.args[k], variables, field);
      const Scalar operand = e.args[e.op == ScalarOp::select_ ? 1 : 0].type;
      return eval_scalar_op(ScalarNode{e.op, e.type}, operand, args[0], args[1], args[2]);
    }
    default:
      LUMEN_UNREACHABLE("expression kind {} in a straight line", static_cast<int>(e.kind));
  }
}

std::string print_expression(const RoutineExpr& e, const Format& f, const Routine& r) {
  auto inner = [&](size_t k) { return print_expression(e.args[k], f, r); };
  // Puts operands of operators in brackets, unless they are simple.
  auto operand = [&](size_t k) {
    const RoutineExpr& a = e.args[k];
    const RoutineExpr& shown = a.kind == Kind::op && a.op == ScalarOp::cast_ ? a.args[0] : a;
    const bool simple = shown.kind != Kind::op || symbol(shown.op).empty() ||
                        (e.op == ScalarOp::mul_ && k == 0 && shown.op == e.op) ||
                        (e.op == ScalarOp::add_ && k == 0 && (shown.op == e.op || shown.op == ScalarOp::mul_)) ||
                        ((e.op == ScalarOp::add_ || e.op == ScalarOp::sub_) && shown.op == ScalarOp::mul_);
    return simple ? inner(k) : "(" + inner(k) + ")";
  };
  switch (e.kind) {
    case Kind::constant:
      return is_float(e.type) ? fmt::format("{}", e.real) : fmt::format("{}", e.integer);
    case Kind::variable:
      return r.variables[e.slot].name;
    case Kind::field: {
      const Field& field = f.fields[e.slot];
      return field.count == 1 ? field.name : fmt::format("{}[{}]", field.name, inner(0));
    }
    case Kind::table:
      return fmt::format("{}[{}]", f.tables[e.slot].name, inner(0));
    case Kind::source:
      return fmt::format("{}[{}]", e.slot == 0 ? "x" : "w", inner(0));
    case Kind::element:
      return fmt::format("{}[{}]", r.variables[e.slot].name, inner(0));
    case Kind::extent:
      return "len(x)";
    case Kind::op:
      break;
  }
  if (e.op == ScalarOp::cast_ && (e.type == Scalar::f32 || e.type == Scalar::i32)) return inner(0);
  if (e.op == ScalarOp::neg_) return "-" + operand(0);
  if (!symbol(e.op).empty()) return fmt::format("{} {} {}", operand(0), symbol(e.op), operand(1));
  std::string text = std::string(scalar_op_info(e.op).name) + "(";
  for (size_t k = 0; k < e.args.size(); ++k) text += (k ? ", " : "") + inner(k);
  return text + ")";
}

}  // namespace lumen
