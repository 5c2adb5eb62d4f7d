#include "number/facts/record_fit.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/ordinal.h"
#include "number/facts/facts.h"
#include "number/facts/straight.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;

// Executes a fit's statements symbolically, on nodes of a formula.
class FitReader {
 public:
  FitReader(const Format& f, Level level, const Routine& fit) : format_(f), level_(level), fit_(fit) {}

  std::optional<RecordFit> read() {
    State state;
    if (!run(fit_.body, state) || out_.extremes.empty()) return std::nullopt;
    for (int k = 0; k < std::ssize(format_.fields); ++k) {
      if (format_.fields[k].level != level_) continue;
      const auto found = set_.find(k);
      if (found == set_.end()) return std::nullopt;
      Formula whole = values_;
      whole.outputs = {found->second};
      out_.fields.emplace_back(k, simplify_formula(whole));
    }
    return std::move(out_);
  }

 private:
  using State = std::map<int, int>;  // node by variable

  bool run(const std::vector<RoutineStmt>& body, State& state) {
    return std::ranges::all_of(body, [&](const RoutineStmt& s) { return statement(s, state); });
  }

  bool statement(const RoutineStmt& s, State& state) {
    switch (s.kind) {
      case RoutineStmt::Kind::set: {
        const int value = node(values_, s.value, state);
        state[s.slot] = value;
        return value >= 0;
      }
      case RoutineStmt::Kind::set_field: {
        const bool is_first = s.index.kind == Kind::constant && s.index.integer == 0;
        const int value = node(values_, s.value, state);
        set_[s.slot] = value;
        return is_first && value >= 0 && is_single(s.slot);
      }
      case RoutineStmt::Kind::loop:
        return loop(s, state);
      case RoutineStmt::Kind::branch:
        return branch(s, state);
      default:
        return false;
    }
  }

  bool is_single(int field) const {
    const Field& f = format_.fields[field];
    return f.level == level_ && f.count == 1 && f.type.is_float && values_.type(set_.at(field)) == Scalar::f32;
  }

  // Both branches are computed, and selected per variable; fields must be set outside of branches.
  bool branch(const RoutineStmt& s, State& state) {
    const int condition = node(values_, s.value, state);
    State first = state, second = state;
    const std::map<int, int> before = set_;
    if (condition < 0 || !run(s.body, first) || !run(s.otherwise, second) || set_ != before) return false;
    for (const auto& [slot, value] : first) {
      const auto other = second.find(slot);
      if (other == second.end() || values_.type(value) != values_.type(other->second)) {
        state.erase(slot);
        continue;
      }
      state[slot] = value == other->second ? value : values_.op(ScalarOp::select_, condition, value, other->second);
    }
    return true;
  }

  // for j in 0..len(x): acc = max(acc, abs(..x[j]..)), with acc starting at the identity.
  bool loop(const RoutineStmt& s, State& state) {
    const bool is_whole = s.from.kind == Kind::constant && s.from.integer == 0 && s.step == 1 &&
                          s.to.kind == Kind::extent && s.body.size() == 1 && s.body[0].kind == RoutineStmt::Kind::set;
    if (!is_whole) return false;
    const RoutineStmt& set = s.body[0];
    const RoutineExpr& e = set.value;
    const auto begun = state.find(set.slot);
    if (begun == state.end() || e.kind != Kind::op || e.type != Scalar::f32 || e.args.size() != 2) return false;
    if (e.op != ScalarOp::max_ && e.op != ScalarOp::min_) return false;
    if (e.args[0].kind != Kind::variable || e.args[0].slot != set.slot) return false;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const ScalarNode& start = values_.nodes[begun->second];
    if (start.op != ScalarOp::constant || start.real != (e.op == ScalarOp::max_ ? -kInfinity : kInfinity)) return false;
    Extreme extreme{e.op, {}};
    extreme.of.inputs = {Scalar::f32};
    counter_ = s.slot;
    const int value =
        e.args[1].kind == Kind::op && e.args[1].op == ScalarOp::abs_ ? node(extreme.of, e.args[1], {}) : -1;
    counter_ = -1;
    if (value < 0) return false;
    extreme.of.outputs = {value};
    values_.inputs.push_back(Scalar::f32);
    state[set.slot] = values_.input(out_.extremes.size());
    out_.extremes.push_back(std::move(extreme));
    return true;
  }

  int node(Formula& f, const RoutineExpr& e, const State& state) {
    if (e.kind == Kind::constant) return is_float(e.type) ? f.constant(e.type, e.real) : f.integer(e.type, e.integer);
    if (e.kind == Kind::variable) {
      const auto found = state.find(e.slot);
      return found == state.end() ? -1 : found->second;
    }
    if (e.kind == Kind::source) {
      const bool is_own =
          counter_ >= 0 && e.slot == 0 && e.args[0].kind == Kind::variable && e.args[0].slot == counter_;
      return is_own ? f.input(0) : -1;
    }
    if (e.kind != Kind::op) return -1;
    int args[3] = {-1, -1, -1};
    for (size_t k = 0; k < e.args.size(); ++k)
      if ((args[k] = node(f, e.args[k], state)) < 0) return -1;
    if (scalar_op_info(e.op).result == "cast") return f.convert(e.op, e.type, args[0]);
    return f.op(e.op, args[0], args[1], args[2]);
  }

  const Format& format_;
  Level level_;
  const Routine& fit_;
  RecordFit out_;
  Formula values_;          // inputs: the extremes
  std::map<int, int> set_;  // node by field
  int counter_ = -1;        // the variable of the loop at hand
};

bool reads_fields_alone(const Format& f, const RoutineExpr& e) {
  if (e.kind == Kind::variable && e.slot != 0) return false;
  if (e.kind == Kind::field && f.fields[e.slot].level == Level::block) return false;
  if (e.kind == Kind::table || e.kind == Kind::source || e.kind == Kind::extent || e.kind == Kind::element)
    return false;
  return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return reads_fields_alone(f, a); });
}

}  // namespace

std::optional<RecordFit> record_fit(const Format& f, Level level) {
  const auto& fit = f.fit[ordinal(level)];
  if (!fit || level == Level::block) return std::nullopt;
  return FitReader(f, level, *fit).read();
}

std::optional<ByteCode> byte_code(const Format& f) {
  if (const FieldType* plain = plain_field(f)) {
    if (plain->bits != 8) return std::nullopt;
    return ByteCode{*plain, {}, {}};
  }
  if (f.block != 1 || f.block_bytes != 1 || f.code_field < 0 || !f.code || f.fit[ordinal(Level::block)])
    return std::nullopt;
  ByteCode out{f.fields[f.code_field].type, straight_line(*f.code), {}};
  for (int k = 0; k < std::ssize(f.fields); ++k) {
    const Field& field = f.fields[k];
    if (k != f.code_field && (field.level == Level::block || field.count != 1 || !field.type.is_float))
      return std::nullopt;
    if (k != f.code_field) out.fields.push_back(k);
  }
  if (out.type.bits != 8 || !out.code || !reads_fields_alone(f, *out.code)) return std::nullopt;
  return out;
}

}  // namespace lumen
