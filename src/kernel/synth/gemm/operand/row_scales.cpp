#include "kernel/synth/gemm/operand/row_scales.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/mma/mma.h"
#include "kernel/synth/order/order.h"
#include "number/facts/facts.h"

namespace lumen::synth {
namespace {

// A format of the same bytes that decodes to something else.
FormatRef decoded_by(const Format& f, const RoutineExpr& e, const char* what) {
  auto out = std::make_shared<Format>(f);
  out->decode.body.clear();
  out->decode.result = e;
  out->hash = hash_text(f.source_text + what);
  return out;
}

RoutineExpr of_first_field(RoutineExpr e) {
  if (e.kind == RoutineExpr::Kind::field) e.slot = 0;
  for (RoutineExpr& a : e.args) a = of_first_field(std::move(a));
  return e;
}

// The codes alone, which lie first in a blob.
FormatRef codes_of(const Format& f, const RoutineExpr& value, int field) {
  auto out = std::make_shared<Format>(f);
  out->fields = {f.fields[field]};
  out->code_field = 0;
  out->row_bytes = out->tile_bytes = out->tensor_bytes = 0;
  out->decode.body.clear();
  out->decode.result = of_first_field(value);
  out->hash = hash_text(f.source_text + " codes");
  return out;
}

struct Factored {
  FormatRef codes, scale;
};

// Rows lie along k, and whole ones: what m or n counts are rows.
bool has_rows(const DotProblem& p, size_t load) {
  const DotLoad& l = p.loads[load];
  const DotIndex& rows = load == 0 ? p.m : p.n;
  const auto whole = [&](const DotIndex& i) { return i.extent == 1 || i.strides[load] % l.columns == 0; };
  return p.k.strides[load] == 1 && p.k.extent <= l.columns && l.offset % l.columns == 0 && whole(rows) &&
         p.outer_k.empty() && std::ranges::all_of(p.outer, whole);
}

// Both 16-bit floats have all of these numbers.
bool are_short(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double v) {
    if (std::isnan(v)) return true;
    const auto x = static_cast<float>(v);
    return x == v && bf16_to_f32(f32_to_bf16(x)) == x && f16_to_f32(f32_to_f16(x)) == x;
  });
}

std::optional<Factored> factored(const DotProblem& p, size_t load) {
  const DotLoad& l = p.loads[load];
  if (l.kind != DotLoad::Kind::packed || l.scratch >= 0 || !unpacks_along(p, load, p.k) || !has_rows(p, load))
    return std::nullopt;
  const Format& f = *l.format;
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || facts.scaled->offset || !facts.scaled->scale || !is_constant_in_row(f, *facts.scaled->scale))
    return std::nullopt;
  const auto by_code = values_by_code(f, facts.scaled->value);
  if (!by_code || !are_short(by_code->values)) return std::nullopt;
  return Factored{codes_of(f, facts.scaled->value, by_code->field), decoded_by(f, *facts.scaled->scale, " scale")};
}

void take_out(DotProblem& p, size_t load, const Factored& by) {
  p.row_scales.push_back(p.loads.size());
  p.loads.push_back(p.loads[load]);
  p.loads.back().format = by.scale;
  p.loads.back().value = -1;  // no map reads it
  p.loads[load].format = by.codes;
  const auto too = [&](DotIndex& i) { i.strides.push_back(i.strides[load]); };
  for (DotIndex* i : {&p.m, &p.n, &p.k}) too(*i);
  for (auto* indices : {&p.outer, &p.outer_k})
    for (DotIndex& i : *indices) too(i);
}

bool is_short(const DotLoad& l) {
  if (l.kind == DotLoad::Kind::packed) return l.format->block_bytes * 8 <= 16 * l.format->block;
  return l.kind == DotLoad::Kind::memory && scalar_bytes(l.scalar) == 2;
}

}  // namespace

bool are_multiplied_as_integers(const Format& a, const Format& b, const machine::Machine& m) {
  const auto is_byte = [](const Format& f) {
    if (f.block != 1 || f.fields.size() != 1 || f.fields[0].count != 1 || !f.decode.body.empty()) return false;
    const FieldType& t = f.fields[0].type;
    const RoutineExpr* value = &f.decode.result;
    if (value->kind == RoutineExpr::Kind::op && value->op == ScalarOp::cast_) value = value->args.data();
    return value->kind == RoutineExpr::Kind::field && !t.is_float && t.has_sign && t.bits == 8;
  };
  return is_byte(a) && is_byte(b) && m.has_integer_blocks && find_matrix(m, {Scalar::i8, {}}, 32);
}

std::optional<DotProblem> with_row_scales(const DotProblem& p, const machine::Machine& m, bool both) {
  if (p.pick || p.runs || !is_short(p.loads[1])) return std::nullopt;
  const auto a = factored(p, 0), b = factored(p, 1);
  if (!a || (both && !b)) return std::nullopt;
  DotProblem out = p;
  take_out(out, 0, *a);
  if (both) take_out(out, 1, *b);
  if (!b || both) return out;
  const auto code = machine::code_of(*a->codes);
  const bool floats = code && code == machine::code_of(*b->codes) && find_matrix(m, {Scalar::u8, code}, 32);
  if (floats || are_multiplied_as_integers(*a->codes, *b->codes, m)) take_out(out, 1, *b);
  return out;
}

}  // namespace lumen::synth
