// Chooses the row, the bias and, for costly codes, the look-up table.
#include "kernel/synth/order/factor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "number/facts/typing.h"

namespace lumen::synth {
namespace {

// A bias such that codes minus it are in the range that the row takes without saturating; nullopt if there is none.
std::optional<int64_t> bias_for(const AffineForm& form, const machine::DotRow& row) {
  const int64_t low = row.a == Scalar::u8 ? 0 : -row.a_max;
  const int64_t high = row.a == Scalar::i8 ? std::min<int64_t>(row.a_max, 127) : row.a_max;
  if (form.q_min >= low && form.q_max <= high) return 0;
  if (form.q_max - form.q_min <= high - low) return form.q_min - low;
  return std::nullopt;
}

// Values by code of an expression of one code field of at most eight bits, evaluated as the codec would.
class CodeTable {
 public:
  explicit CodeTable(const Format& f) : format_(f) {}

  // False when the expression depends on anything but the element's own code.
  bool accepts(const RoutineExpr& e) {
    using Kind = RoutineExpr::Kind;
    if (e.kind == Kind::field) {
      const Field& f = format_.fields[e.slot];
      const bool own = f.level == Level::block && f.count == format_.block && f.type.bits <= 8 &&
                       (format_.block == 1 || e.args[0].kind == Kind::variable) && (field == -1 || field == e.slot);
      field = e.slot;
      costly = costly || f.type.is_float;
      return own;
    }
    if (e.kind == Kind::table) costly = true;
    if (e.kind != Kind::op && e.kind != Kind::constant && e.kind != Kind::table) return false;
    return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return accepts(a); });
  }

  ScalarValue value(const RoutineExpr& e, uint64_t code) const {
    using Kind = RoutineExpr::Kind;
    if (e.kind == Kind::constant) return {e.real, e.integer};
    if (e.kind == Kind::field) {
      const double x = field_decode(format_.fields[e.slot].type, code);
      return is_float(e.type) ? ScalarValue{x, 0} : ScalarValue{0, static_cast<int64_t>(x)};
    }
    ScalarValue args[3];
    for (size_t i = 0; i < e.args.size(); ++i) args[i] = value(e.args[i], code);
    if (e.kind == Kind::table) {
      const std::vector<double>& entries = format_.tables[e.slot].values;
      const size_t i = std::min(static_cast<size_t>(std::max<int64_t>(args[0].integer, 0)), entries.size() - 1);
      return is_float(e.type) ? ScalarValue{entries[i], 0} : ScalarValue{0, static_cast<int64_t>(entries[i])};
    }
    return eval_scalar_op({e.op, e.type}, e.args[e.op == ScalarOp::select_ ? 1 : 0].type, args[0], args[1], args[2]);
  }

  int field = -1;
  bool costly = false;  // more than an addition

 private:
  const Format& format_;
};

// Fills the table of q' where computing q costs more than looking it up; false if q needs the table and does not fit
// it.
bool find_table(const machine::Machine& m, const std::vector<int64_t>& values, IntegerDot& d) {
  d.table.clear();
  if (values.empty()) return true;
  const bool needed = !d.form_has_q;
  if (!looks_up_bytes(std::ssize(values), d.step(), m)) return !needed;
  for (const int64_t q : values) {
    d.table.push_back(q - d.bias);
    const bool fits = d.row.a == Scalar::u8 ? d.table.back() >= 0 && d.table.back() <= 255
                                            : d.table.back() >= -128 && d.table.back() <= 127;
    if (fits) continue;
    d.table.clear();
    return !needed;
  }
  return true;
}

// If values of a scaled form are integers times a power of two (small floats, tables): the affine form with those
// integers, which only the table gives.
std::optional<AffineForm> integers_of(const Format& f, const ScaledForm& scaled, int* field,
                                      std::vector<int64_t>* table) {
  const auto by_code = values_by_code(f, scaled.value);
  if (!by_code) return std::nullopt;
  const std::vector<double>& values = by_code->values;
  for (int shift = 0; shift <= 16; ++shift) {
    const double up = std::ldexp(1.0, shift);
    const bool whole = std::ranges::all_of(values, [&](double v) {
      return std::isfinite(v) && std::fabs(v * up) < 32768 && v * up == std::nearbyint(v * up);
    });
    if (!whole) continue;
    AffineForm form;
    const RoutineExpr down = read::float_constant(1 / up);
    form.scale = scaled.scale ? read::make_op(ScalarOp::mul_, {*scaled.scale, down}) : down;
    form.offset = scaled.offset;
    form.group = scaled.group;
    for (const double v : values) {
      table->push_back(static_cast<int64_t>(v * up));
      form.q_min = std::min(form.q_min, table->back());
      form.q_max = std::max(form.q_max, table->back());
    }
    *field = by_code->field;
    return form;
  }
  return std::nullopt;
}

// The code's sign bit, if q is a signed field's number and the bias makes its least code 0.
std::optional<int64_t> flipped_bit(const Format& f, const IntegerDot& d) {
  const RoutineExpr& q = d.form.q;
  if (!d.form_has_q || q.kind != RoutineExpr::Kind::field) return std::nullopt;
  const Field& field = f.fields[q.slot];
  if (field.type.is_float || !field.type.is_signed || field.type.bits > 8) return std::nullopt;
  if (field.count != f.block || (f.block > 1 && q.args[0].kind != RoutineExpr::Kind::variable)) return std::nullopt;
  const int64_t top = int64_t{1} << (field.type.bits - 1);
  return d.bias == -top && d.row.a == Scalar::u8 ? std::optional(top) : std::nullopt;
}

}  // namespace

std::optional<CodeValues> values_by_code(const Format& f, const RoutineExpr& e) {
  CodeTable codes(f);
  if (!codes.accepts(e) || codes.field < 0) return std::nullopt;
  CodeValues out{codes.field, {}, codes.costly};
  const uint64_t count = uint64_t{1} << f.fields[codes.field].type.bits;
  for (uint64_t code = 0; code < count; ++code) {
    const ScalarValue v = codes.value(e, code);
    out.values.push_back(is_float(e.type) ? v.real : v.integer);
  }
  return out;
}

std::optional<int> counting(const std::vector<double>& values) {
  for (const size_t flipped : {size_t{0}, values.size() / 2}) {
    bool counts = true;
    for (size_t code = 0; code < values.size(); ++code)
      counts = counts && values[code ^ flipped] == values[flipped] + code;
    if (counts) return static_cast<int>(flipped);
  }
  return std::nullopt;
}

Expr lanes_by_group(Builder& b, Unpack& cursor, const RoutineExpr& e, int64_t group, int64_t elements) {
  std::vector<int64_t> starts;
  for (int64_t at = 0; at < elements; at += group) starts.push_back(at);
  if (cursor.format().tile_bytes == 0) return cursor.expression(e, starts, true);
  return b.join(starts.size(), [&](int i) { return cursor.expression(e, {starts[i]}, true); });  // lane by lane
}

bool is_constant_in_row(const Format& f, const RoutineExpr& e) {
  if (e.kind == RoutineExpr::Kind::variable) return false;
  if (e.kind == RoutineExpr::Kind::field &&
      (f.fields[e.slot].level == Level::block || f.fields[e.slot].level == Level::tile))
    return false;
  return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return is_constant_in_row(f, a); });
}

void find_groups(const Format& f, int64_t columns, int64_t group, IntegerDot& d) {
  const bool whole_rows =
      is_constant_in_row(f, d.form.scale) && (!d.form.offset || is_constant_in_row(f, *d.form.offset));
  d.group = whole_rows ? columns : group;
  d.fine = whole_rows ? kActivationGroup : std::gcd(d.group, kActivationGroup);
}

std::optional<IntegerDot> factor_integer(const Format& f, int64_t columns, const machine::Machine& m,
                                         std::string* why) {
  const FormatFacts facts = facts_of(f);
  IntegerDot d;
  std::vector<int64_t> values;  // of q by code, where there is such a table
  if (facts.affine) {
    d.form = *facts.affine;
    if (const auto by_code = values_by_code(f, d.form.q); by_code && by_code->costly) {
      d.code_field = by_code->field;
      values.assign(by_code->values.begin(), by_code->values.end());
    }
  } else if (auto form = facts.scaled ? integers_of(f, *facts.scaled, &d.code_field, &values) : std::nullopt) {
    d.form = *form;
    d.form_has_q = false;
  } else {
    *why = "not affine in integers";
    return std::nullopt;
  }
  find_groups(f, columns, d.form.group, d);
  for (const machine::DotRow& row : m.dots) {
    const auto bias = bias_for(d.form, row);
    if (!bias || d.group <= 0 || row.acc != Scalar::i32) continue;
    if (d.fine % row.k != 0) continue;
    d.row = row;
    d.bias = *bias;
    if (find_table(m, values, d)) return d;
  }
  *why = fmt::format("no integer dot takes codes {}..{} in groups of {}", d.form.q_min, d.form.q_max, d.group);
  return std::nullopt;
}

Expr integer_codes(Builder& b, Unpack& cursor, const IntegerDot& d, const machine::Machine& m,
                   std::vector<int64_t> elements) {
  const int lanes = elements.size();
  const int64_t some = *std::max_element(elements.begin(), elements.end());
  for (int64_t& e : elements) e = e < 0 ? some : e;
  const int64_t low = d.form.q_min - d.bias, high = d.form.q_max - d.bias;
  Expr q;
  if (!d.table.empty()) {
    const Expr index = cursor.codes(d.code_field, elements, true, &m);
    q = look_up_bytes(b, d.table, b.type(index).lanes == 1 ? b.splat(index, lanes) : index, m);
  } else if (const auto top = flipped_bit(cursor.format(), d)) {
    q = cursor.codes(d.form.q.slot, elements, true, &m);
    if (b.type(q).lanes == 1) q = b.splat(q, lanes);
    q = q ^ *top;
  } else if (low < -128 || high > (low < 0 ? 127 : 255)) {  // does not fit into bytes
    q = cursor.expression(d.form.q, elements, true);
    if (d.bias != 0) q = q - d.bias;
    return cast(q, d.row.a);
  } else {
    q = cursor.bytes(d.form.q, elements, m);
    if (d.bias != 0) q = q - (d.bias & 255);
  }
  if (d.row.a == Scalar::u8) return q;
  if (low < 0 || d.row.a == Scalar::i8) q = bitcast(q, Scalar::i8);
  return cast(q, d.row.a);
}

}  // namespace lumen::synth
