// V_CMP and V_CMPX: one bit for each lane, 0 where EXEC is.
#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

enum class Relation : uint8_t { f, lt, eq, le, gt, lg, ge, o, u, nge, nlg, ngt, nle, neq, nlt, t };

template <Relation R, class X>
bool holds(X a, X b) {
  const bool ordered = a == a && b == b;
  switch (R) {
    case Relation::f:
      return false;
    case Relation::lt:
      return a < b;
    case Relation::eq:
      return a == b;
    case Relation::le:
      return a <= b;
    case Relation::gt:
      return a > b;
    case Relation::lg:
      return a < b || a > b;
    case Relation::ge:
      return a >= b;
    case Relation::o:
      return ordered;
    case Relation::u:
      return !ordered;
    case Relation::nge:
      return !(a >= b);
    case Relation::nlg:
      return !(a < b || a > b);
    case Relation::ngt:
      return !(a > b);
    case Relation::nle:
      return !(a <= b);
    case Relation::neq:
      return !(a == b);
    case Relation::nlt:
      return !(a < b);
    case Relation::t:
      return true;
  }
}

enum : uint32_t { kToExec = 1, kOnlyExec = 2 };

template <Relation R, class X>
void compare(Wave& w, const Instruction& i) {
  const int first = i.number & kOnlyExec ? 0 : 1;
  Column<X> a, b;
  fetch(w, i, i.at[static_cast<size_t>(first)], 0, a), fetch(w, i, i.at[static_cast<size_t>(first) + 1], 1, b);
  const uint64_t exec = w.exec();
  uint64_t bits = 0;
  for (int l = 0; l < w.lanes; ++l) {
    bool is = false;
    if constexpr (std::is_same_v<X, Half>) {
      is = holds<R>(a[l].value(), b[l].value());
    } else {
      is = holds<R>(a[l], b[l]);
    }
    bits |= static_cast<uint64_t>(is) << l;
  }
  bits &= exec;
  if (first == 1) w.set_mask(i.at[0].first, bits);
  if (i.number & kToExec) w.set_exec(bits);
}

template <Relation R, class X>
void add(const Chip& chip, Operations& t, const std::string& relation, const std::string& type) {
  const Type x = type_of<X>();
  t["v_cmp_" + relation + "_" + type] = {.run = compare<R, X>, .types = {Type::b64, x, x}};
  Operation& exec = t["v_cmpx_" + relation + "_" + type];
  exec = {.run = compare<R, X>, .types = {Type::b64, x, x}, .number = kToExec};
  if (chip.major > 9) exec = {.run = compare<R, X>, .types = {x, x}, .results = 0, .number = kToExec | kOnlyExec};
}

template <class X>
void add_integers(const Chip& chip, Operations& t, const std::string& type) {
  add<Relation::f, X>(chip, t, "f", type);
  add<Relation::lt, X>(chip, t, "lt", type);
  add<Relation::eq, X>(chip, t, "eq", type);
  add<Relation::le, X>(chip, t, "le", type);
  add<Relation::gt, X>(chip, t, "gt", type);
  add<Relation::neq, X>(chip, t, "ne", type);
  add<Relation::ge, X>(chip, t, "ge", type);
  add<Relation::t, X>(chip, t, "t", type);
}

template <class X>
void add_floats(const Chip& chip, Operations& t, const std::string& type) {
  add<Relation::f, X>(chip, t, "f", type);
  add<Relation::lt, X>(chip, t, "lt", type);
  add<Relation::eq, X>(chip, t, "eq", type);
  add<Relation::le, X>(chip, t, "le", type);
  add<Relation::gt, X>(chip, t, "gt", type);
  add<Relation::lg, X>(chip, t, "lg", type);
  add<Relation::ge, X>(chip, t, "ge", type);
  add<Relation::o, X>(chip, t, "o", type);
  add<Relation::u, X>(chip, t, "u", type);
  add<Relation::nge, X>(chip, t, "nge", type);
  add<Relation::nlg, X>(chip, t, "nlg", type);
  add<Relation::ngt, X>(chip, t, "ngt", type);
  add<Relation::nle, X>(chip, t, "nle", type);
  add<Relation::neq, X>(chip, t, "neq", type);
  add<Relation::nlt, X>(chip, t, "nlt", type);
  add<Relation::t, X>(chip, t, "tru", type);
}

}  // namespace

void add_comparisons(const Chip& chip, Operations& t) {
  add_integers<int16_t>(chip, t, "i16");
  add_integers<uint16_t>(chip, t, "u16");
  add_integers<int32_t>(chip, t, "i32");
  add_integers<uint32_t>(chip, t, "u32");
  add_integers<int64_t>(chip, t, "i64");
  add_integers<uint64_t>(chip, t, "u64");
  add_floats<Half>(chip, t, "f16");
  add_floats<float>(chip, t, "f32");
  add_floats<double>(chip, t, "f64");
}

}  // namespace lumen::amd
