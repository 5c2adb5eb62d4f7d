#include "number/facts/code_parts.h"

#include <algorithm>
#include <set>

#include "number/facts/typing.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;

// Powers of two whose reciprocals are f32, too: 2^-127, the last one, is a subnormal number.
bool has_reciprocal(const FieldType& t) {
  constexpr int kMost = 127;
  const int top = (1 << t.exponent_bits) - 2 - t.bias;  // all ones are NaN
  return t.is_float && !t.has_sign && t.special == FieldType::Special::scale && t.mantissa_bits == 0 &&
         t.bias <= kMost && top <= kMost;
}

void levels_of(const Format& f, const RoutineExpr& e, std::set<Level>& levels) {
  if (e.kind == Kind::field) levels.insert(f.fields[e.slot].level);
  for (const RoutineExpr& a : e.args) levels_of(f, a, levels);
}

bool reads_number(const RoutineExpr& e) {
  return e.kind == Kind::variable || std::ranges::any_of(e.args, reads_number);
}

// Whether it has one value per record.
bool is_part(const Format& f, const RoutineExpr& e) {
  std::set<Level> levels;
  levels_of(f, e, levels);
  const size_t others = levels.size() - levels.count(Level::tensor);
  return !levels.empty() && others <= 1 && e.type == Scalar::f32 && !reads_number(e);
}

class Parting {
 public:
  explicit Parting(const Format& f) : format_(f) {}

  RoutineExpr rest(RoutineExpr e) {
    if (is_part(format_, e)) return part(e);
    for (RoutineExpr& a : e.args) a = rest(a);
    return e;
  }

  std::vector<RoutineExpr> parts;

 private:
  RoutineExpr part(const RoutineExpr& e) {
    const auto known = std::ranges::find_if(parts, [&](const RoutineExpr& p) { return read::same_expression(p, e); });
    RoutineExpr out{Kind::variable, Scalar::f32};
    out.slot = known - parts.begin() + 1;
    if (known == parts.end()) parts.push_back(e);
    return out;
  }

  const Format& format_;
};

}  // namespace

RoutineExpr by_reciprocals(const Format& f, RoutineExpr e) {
  for (RoutineExpr& a : e.args) a = by_reciprocals(f, a);
  const bool divides = e.kind == Kind::op && e.op == ScalarOp::div_ && e.type == Scalar::f32;
  if (!divides || e.args[1].kind != Kind::field || !has_reciprocal(f.fields[e.args[1].slot].type)) return e;
  const RoutineExpr reciprocal = read::make_op(ScalarOp::div_, {read::float_constant(1), e.args[1]});
  return read::make_op(ScalarOp::mul_, {e.args[0], reciprocal});
}

namespace {

void use_reciprocals(const Format& f, std::vector<RoutineStmt>& body) {
  for (RoutineStmt& s : body) {
    s.value = by_reciprocals(f, s.value);
    use_reciprocals(f, s.body);
    use_reciprocals(f, s.otherwise);
  }
}

}  // namespace

Routine by_reciprocals(const Format& f, Routine code) {
  use_reciprocals(f, code.body);
  code.result = by_reciprocals(f, code.result);
  return code;
}

CodeParts code_parts(const Format& f, const ByteCode& byte) {
  CodeParts out;
  if (!byte.code) return out;
  Parting parting(f);
  out.code = parting.rest(by_reciprocals(f, *byte.code));
  out.parts = std::move(parting.parts);
  return out;
}

Level level_of(const Format& f, const RoutineExpr& e) {
  std::set<Level> levels;
  levels_of(f, e, levels);
  levels.erase(Level::tensor);
  return levels.empty() ? Level::tensor : *levels.begin();
}

}  // namespace lumen
