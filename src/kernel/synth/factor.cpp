// Chooses the row, the bias and, for costly codes, the look-up table.
#include "kernel/synth/factor.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lumen::synth {
namespace {

// Neither depends on the element nor on fields of its block: constant over a row.
bool is_constant_in_row(const Format& f, const RoutineExpr& e) {
  if (e.kind == RoutineExpr::Kind::variable) return false;
  if (e.kind == RoutineExpr::Kind::field && (f.fields[static_cast<size_t>(e.slot)].level == Level::block ||
                                             f.fields[static_cast<size_t>(e.slot)].level == Level::tile))
    return false;
  for (const RoutineExpr& a : e.args)
    if (!is_constant_in_row(f, a)) return false;
  return true;
}

// Codes minus the bias lie in what the row takes without saturating; the bias, or nothing.
std::optional<int64_t> bias_for(const AffineForm& form, const machine::DotRow& row) {
  const int64_t low = row.a == Scalar::u8 ? 0 : -row.a_max;
  const int64_t high = row.a == Scalar::i8 ? std::min<int64_t>(row.a_max, 127) : row.a_max;
  if (form.q_min >= low && form.q_max <= high) return 0;
  if (form.q_max - form.q_min <= high - low) return form.q_min - low;
  return std::nullopt;
}

// q as a function of one code field of at most four bits, by code; evaluates the expression as the codec would.
class CodeTable {
 public:
  explicit CodeTable(const Format& f) : format_(f) {}

  // False when the expression depends on anything but the element's own code.
  bool accepts(const RoutineExpr& e) {
    using Kind = RoutineExpr::Kind;
    if (e.kind == Kind::field) {
      const Field& f = format_.fields[static_cast<size_t>(e.slot)];
      const bool own = f.level == Level::block && f.count == format_.block && f.type.bits <= 4 &&
                       (format_.block == 1 || e.args[0].kind == Kind::variable) && (field == -1 || field == e.slot);
      field = e.slot;
      costly = costly || f.type.is_float;
      return own;
    }
    if (e.kind == Kind::table) costly = true;
    if (e.kind != Kind::op && e.kind != Kind::constant && e.kind != Kind::table) return false;
    for (const RoutineExpr& a : e.args)
      if (!accepts(a)) return false;
    return true;
  }

  ScalarValue value(const RoutineExpr& e, uint64_t code) const {
    using Kind = RoutineExpr::Kind;
    if (e.kind == Kind::constant) return {e.real, e.integer};
    if (e.kind == Kind::field) {
      const double x = field_decode(format_.fields[static_cast<size_t>(e.slot)].type, code);
      return is_float(e.type) ? ScalarValue{x, 0} : ScalarValue{0, static_cast<int64_t>(x)};
    }
    ScalarValue args[3];
    for (size_t i = 0; i < e.args.size(); ++i) args[i] = value(e.args[i], code);
    if (e.kind == Kind::table) {
      const std::vector<double>& entries = format_.tables[static_cast<size_t>(e.slot)].values;
      const size_t i = std::min(static_cast<size_t>(std::max<int64_t>(args[0].integer, 0)), entries.size() - 1);
      return is_float(e.type) ? ScalarValue{entries[i], 0} : ScalarValue{0, static_cast<int64_t>(entries[i])};
    }
    ScalarNode node{};
    node.op = e.op;
    node.type = e.type;
    return eval_scalar_op(node, e.args[e.op == ScalarOp::select_ ? 1 : 0].type, args[0], args[1], args[2]);
  }

  int field = -1;
  bool costly = false;  // more than an addition

 private:
  const Format& format_;
};

void find_table(const Format& f, const machine::Machine& m, IntegerDot& d) {
  CodeTable codes(f);
  if (!codes.accepts(d.form.q) || codes.field < 0 || !codes.costly) return;
  if (!m.find_row(fmt::format("lookup16.u8x{}", d.step()))) return;
  const uint64_t count = uint64_t{1} << f.fields[static_cast<size_t>(codes.field)].type.bits;
  std::vector<int64_t> table;
  for (uint64_t code = 0; code < 16; ++code) {
    const int64_t q = codes.value(d.form.q, code % count).integer - d.bias;
    if (q < (d.row.a == Scalar::u8 ? 0 : -128) || q > (d.row.a == Scalar::u8 ? 255 : 127)) return;
    table.push_back(q);
  }
  d.code_field = codes.field;
  d.table = std::move(table);
}

}  // namespace

std::optional<IntegerDot> factor_integer(const Format& f, int64_t columns, const machine::Machine& m,
                                         std::string* why) {
  const FormatFacts facts = facts_of(f);
  if (!facts.affine) {
    *why = "not affine in integers";
    return std::nullopt;
  }
  IntegerDot d;
  d.form = *facts.affine;
  const bool whole_rows =
      is_constant_in_row(f, d.form.scale) && (!d.form.offset || is_constant_in_row(f, *d.form.offset));
  d.group = whole_rows ? columns : d.form.group;
  for (const machine::DotRow& row : m.dots) {
    const auto bias = bias_for(d.form, row);
    if (!bias || d.group <= 0 || d.group % row.k != 0 || row.acc != Scalar::i32) continue;
    // A group and an instruction nest one way or the other; whole blocks make whole instructions or the tail is padded.
    const int64_t step = int64_t{row.lanes} * row.k;
    if (d.group % step != 0 && step % d.group != 0) continue;
    d.sum_group = std::gcd(d.group, kActivationGroup);
    if (d.sum_group % row.k != 0 || d.sum_group % m.f32_lanes() != 0 ||
        (d.sum_group % step != 0 && step % d.sum_group != 0))
      continue;
    d.row = row;
    d.bias = *bias;
    find_table(f, m, d);
    return d;
  }
  *why = fmt::format("no integer dot takes codes {}..{} in groups of {}", d.form.q_min, d.form.q_max, d.group);
  return std::nullopt;
}

}  // namespace lumen::synth
