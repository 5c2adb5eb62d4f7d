#include "kernel/synth/factor.h"

#include <fmt/format.h>

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
    return d;
  }
  *why = fmt::format("no integer dot takes codes {}..{} in groups of {}", d.form.q_min, d.form.q_max, d.group);
  return std::nullopt;
}

}  // namespace lumen::synth
