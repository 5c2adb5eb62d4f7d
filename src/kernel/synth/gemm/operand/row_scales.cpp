#include "kernel/synth/gemm/operand/row_scales.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/mma/mma.h"
#include "kernel/synth/order/order.h"
#include "number/facts/facts.h"
#include "number/facts/typing.h"

namespace lumen::synth {
namespace {

// A format of the same bytes that decodes to `e`.
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

// A format of the codes alone, which are stored first in a blob.
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
  FormatRef codes, scale;   // no scale: it stays with the codes
  bool has_blocks = false;  // scales within rows stay with the codes
};

constexpr int kShortDigits = 8;  // significant bits of a bf16 number

// Most bits from the first to the last nonzero bit of a number; nullopt if that is not known.
std::optional<int> digits_of(const Format& f, const RoutineExpr& e) {
  if (e.kind == RoutineExpr::Kind::field) {
    const FieldType& t = f.fields[e.slot].type;
    return t.is_float ? t.mantissa_bits + 1 : t.bits;
  }
  if (e.kind != RoutineExpr::Kind::op) return std::nullopt;
  if (e.op == ScalarOp::cast_ || e.op == ScalarOp::neg_) return digits_of(f, e.args[0]);
  if (e.op != ScalarOp::mul_) return std::nullopt;
  const auto a = digits_of(f, e.args[0]), b = digits_of(f, e.args[1]);
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

int digits_of(double value) {
  int exponent = 0;
  double rest = std::abs(std::frexp(value, &exponent));
  int bits = 0;
  for (; rest != 0; rest = rest * 2 - std::floor(rest * 2)) bits += 1;
  return bits;
}

// A product as the factor that is constant over a row, and the rest.
struct Split {
  std::optional<RoutineExpr> row, rest;
};
Split split_by_row(const Format& f, const RoutineExpr& e) {
  if (is_constant_in_row(f, e)) return {e, std::nullopt};
  if (e.kind == RoutineExpr::Kind::op && e.op == ScalarOp::div_ && is_float(e.type) &&
      is_constant_in_row(f, e.args[1])) {
    Split s = split_by_row(f, e.args[0]);
    RoutineExpr quotient = e;
    quotient.args[0] = s.row ? *s.row : read::float_constant(1);
    s.row = std::move(quotient);
    return s;
  }
  if (e.kind != RoutineExpr::Kind::op || e.op != ScalarOp::mul_) return {std::nullopt, e};
  const Split a = split_by_row(f, e.args[0]), b = split_by_row(f, e.args[1]);
  const auto product = [&](const std::optional<RoutineExpr>& x,
                           const std::optional<RoutineExpr>& y) -> std::optional<RoutineExpr> {
    if (!x || !y) return x ? x : y;
    RoutineExpr out = e;
    out.args = {*x, *y};
    return out;
  };
  return {product(a.row, b.row), product(a.rest, b.rest)};
}

// Blocks under scales of few digits: codes times those are 16-bit floats; scales of rows are applied after the sums.
std::optional<Factored> in_short_blocks(const FormatRef& f, const ScaledForm& form, const std::vector<double>& values) {
  const Split split = split_by_row(*f, *form.scale);
  if (!split.rest) return std::nullopt;
  const std::optional<int> digits = digits_of(*f, *split.rest);
  int most = 0;
  for (const double v : values)
    if (std::isfinite(v)) most = std::max(most, digits_of(v));
  if (!digits || *digits + most > kShortDigits) return std::nullopt;
  if (!split.row) return Factored{f, nullptr, true};
  const RoutineExpr product = read::make_op(ScalarOp::mul_, {*split.rest, form.value});
  return Factored{decoded_by(*f, product, " blocks"), decoded_by(*f, *split.row, " scale"), true};
}

// Whether m or n counts whole rows of the load, along k.
bool has_rows(const DotProblem& p, size_t load) {
  const DotLoad& l = p.loads[load];
  const DotIndex& rows = load == 0 ? p.m : p.n;
  const auto whole = [&](const DotIndex& i) { return i.extent == 1 || i.strides[load] % l.columns == 0; };
  return p.k.strides[load] == 1 && p.k.extent <= l.columns && l.offset % l.columns == 0 && whole(rows) &&
         p.outer_k.empty() && std::ranges::all_of(p.outer, whole);
}

// Whether these numbers are exact in both 16-bit floats.
bool are_short(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double v) {
    if (std::isnan(v)) return true;
    const auto x = static_cast<float>(v);
    return x == v && bf16_to_f32(f32_to_bf16(x)) == x && f16_to_f32(f32_to_f16(x)) == x;
  });
}

// Numbers of blocks have the range of bf16, which f16 does not have: products of few rows, which f16 may do, go
// elsewhere.
bool multiplies_blocks(const DotProblem& p, const machine::Machine& m) {
  constexpr int64_t kLeastRows = 65;
  const bool multiplies = m.kind == machine::Kind::cpu ? multiplies_short(m) : !!find_matrix(m, {Scalar::bf16, {}}, 32);
  return p.m.extent >= kLeastRows && p.n.extent > 1 && multiplies;
}

std::optional<Factored> factored(const DotProblem& p, size_t load, const machine::Machine& m) {
  const DotLoad& l = p.loads[load];
  if (l.kind != DotLoad::Kind::packed || l.scratch >= 0) return std::nullopt;
  const Format& f = *l.format;
  // A matrix is read across its rows only if no field belongs to a row.
  const bool along = unpacks_along(p, load, p.k) && has_rows(p, load);
  const bool across = f.row_bytes == 0 && unpacks_along(p, load, load == 0 ? p.m : p.n);
  if (!along && !across) return std::nullopt;
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || facts.scaled->offset) return std::nullopt;
  const auto by_code = values_by_code(f, facts.scaled->value);
  if (!by_code) return std::nullopt;
  if (!along && !multiplies_blocks(p, m)) return std::nullopt;
  if (!facts.scaled->scale)
    return are_short(by_code->values) ? std::optional(Factored{l.format, nullptr}) : std::nullopt;
  if (!is_constant_in_row(f, *facts.scaled->scale)) return in_short_blocks(l.format, *facts.scaled, by_code->values);
  if (!are_short(by_code->values)) return std::nullopt;
  return Factored{codes_of(f, facts.scaled->value, by_code->field), decoded_by(f, *facts.scaled->scale, " scale")};
}

// Adds a load for the scales of another load.
size_t add_scales(DotProblem& p, size_t load, const FormatRef& scale) {
  p.loads.push_back(p.loads[load]);
  p.loads.back().format = scale;
  p.loads.back().value = -1;  // no map reads it
  const auto too = [&](DotIndex& i) { i.strides.push_back(i.strides[load]); };
  for (DotIndex* i : {&p.m, &p.n, &p.k}) too(*i);
  for (auto* indices : {&p.outer, &p.outer_k})
    for (DotIndex& i : *indices) too(i);
  return p.loads.size() - 1;
}

void take_out(DotProblem& p, size_t load, const Factored& by) {
  if (!by.scale) return;
  p.row_scales.push_back(add_scales(p, load, by.scale));
  p.loads[load].format = by.codes;
}

// An operand as codes, scales shared by whole rows, and scales of runs along K.
struct Runs {
  FormatRef codes, row_scale, run_scale;
  RunScales runs;
  bool are_short = false;  // codes are 16-bit floats exactly
};

// Whether it changes with the tile, the row and the tensor at most.
bool is_of_tiles(const Format& f, const RoutineExpr& e) {
  if (e.kind == RoutineExpr::Kind::variable) return false;
  if (e.kind == RoutineExpr::Kind::field && f.fields[e.slot].level == Level::block) return false;
  return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return is_of_tiles(f, a); });
}

std::optional<Runs> in_runs(const DotProblem& p, size_t load) {
  const DotLoad& l = p.loads[load];
  if (l.kind != DotLoad::Kind::packed || l.scratch >= 0 || l.format->block != 1) return std::nullopt;
  const Format& f = *l.format;
  const DotIndex& rows = load == 0 ? p.m : p.n;
  // Rows of the matrix lie along K, or K counts them.
  const bool along = unpacks_along(p, load, p.k) && has_rows(p, load);
  const auto whole = [&](const DotIndex& i) { return i.extent == 1 || i.strides[load] % l.columns == 0; };
  const bool across = unpacks_along(p, load, rows) && p.k.strides[load] == l.columns && l.offset % l.columns == 0 &&
                      rows.extent <= l.columns && std::ranges::all_of(p.outer, whole);
  if (!along && !across) return std::nullopt;
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || facts.scaled->offset) return std::nullopt;
  const auto by_code = values_by_code(f, facts.scaled->value);
  if (!by_code) return std::nullopt;
  Runs out{codes_of(f, facts.scaled->value, by_code->field), nullptr, nullptr, {}, are_short(by_code->values)};
  if (!facts.scaled->scale) return out;
  const Split split = split_by_row(f, *facts.scaled->scale);
  if (split.row) {
    if (!along && f.row_bytes > 0) return std::nullopt;
    out.row_scale = decoded_by(f, *split.row, " scale");
  }
  if (!split.rest) return out;
  if (!is_of_tiles(f, *split.rest)) return std::nullopt;
  // Tiles begin where K and rows do, or (rows) each row has its own scales.
  const auto begins = [&](int64_t tile) {
    return l.offset / l.columns % tile == 0 && std::ranges::all_of(p.outer, [&](const DotIndex& i) {
             return i.extent == 1 || i.strides[load] / l.columns % tile == 0;
           });
  };
  if (across && !along && !begins(f.tile_rows)) return std::nullopt;
  out.run_scale = decoded_by(f, *split.rest, " run scale");
  if (along)
    out.runs = {0, f.tile_columns, begins(f.tile_rows) ? f.tile_rows : 1};
  else
    out.runs = {0, f.tile_rows, f.tile_columns};
  return out;
}

bool is_short(const DotLoad& l) {
  if (l.kind == DotLoad::Kind::packed) return l.format->block_bytes * 8 <= 16 * l.format->block;
  return l.kind == DotLoad::Kind::memory && scalar_bytes(l.scalar) == 2;
}

}  // namespace

bool multiplies_short(const machine::Machine& m) {
  const auto fits = [](const auto& row) { return row.acc == Scalar::f32 && row.a == Scalar::bf16; };
  return std::ranges::any_of(m.tiles, fits) || std::ranges::any_of(m.dots, fits) ||
         std::ranges::any_of(m.squares, fits);
}

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

namespace {

// Whether the machine multiplies both codes as they are.
bool are_multiplied(const Format& a, const Format& b, const machine::Machine& m) {
  const auto code_a = machine::code_of(a), code_b = machine::code_of(b);
  if (code_a && code_b && find_matrix(m, Factors{{Scalar::u8, code_a}, {Scalar::u8, code_b}}, 32)) return true;
  return are_multiplied_as_integers(a, b, m);
}

}  // namespace

std::optional<DotProblem> with_run_scales(const DotProblem& p, const machine::Machine& m, bool rows_too) {
  if (p.pick || p.runs || p.blocks || !p.outer_k.empty()) return std::nullopt;
  const auto a = in_runs(p, 0), b = in_runs(p, 1);
  if (!a || !b) return std::nullopt;
  const bool rows = rows_too && (a->row_scale || b->row_scale);
  if (!rows && !a->run_scale && !b->run_scale) return std::nullopt;
  DotProblem out = p;
  out.are_short = !are_multiplied(*a->codes, *b->codes, m);
  if (out.are_short && (!a->are_short || !b->are_short || !multiplies_blocks(p, m))) return std::nullopt;
  for (size_t load = 0; load < 2; ++load) {
    const Runs& by = load == 0 ? *a : *b;
    if (by.row_scale) out.row_scales.push_back(add_scales(out, load, by.row_scale));
    if (by.run_scale) {
      out.run_scales[load] = by.runs;
      out.run_scales[load]->load = add_scales(out, load, by.run_scale);
    }
    out.loads[load].format = by.codes;
  }
  return out;
}

std::optional<DotProblem> with_row_scales(const DotProblem& p, const machine::Machine& m, bool both) {
  if (p.pick || p.runs || !is_short(p.loads[1])) return std::nullopt;
  const auto a = factored(p, 0, m), b = factored(p, 1, m);
  if (!a || (both && !b)) return std::nullopt;
  const bool has_blocks = a->has_blocks || (b && b->has_blocks);
  if (has_blocks && (!both || !multiplies_blocks(p, m))) return std::nullopt;
  DotProblem out = p;
  out.are_short = both;
  take_out(out, 0, *a);
  if (both) take_out(out, 1, *b);
  if (!b || both) return out;
  if (are_multiplied(*a->codes, *b->codes, m)) take_out(out, 1, *b);
  return out;
}

std::optional<DotProblem> lay_short(const graph::Graph& g, const DotProblem& p, const machine::Machine& m,
                                    Synthesis& out) {
  LUMEN_CHECK(p.are_short && !p.pick);
  DotProblem laid = p;
  Synthesis made;
  made.scratch = out.scratch;
  for (const size_t load : {size_t{0}, size_t{1}}) {
    if (laid.loads[load].kind != DotLoad::Kind::packed) continue;
    const auto operand = prepare_operand(laid, load, Scalar::bf16, made.scratch.size());
    if (!operand) return std::nullopt;
    made.scratch.push_back(operand->bytes);
    made.steps.push_back(write_prepare(g, laid, load, *operand, m));
    laid = operand->problem;
  }
  out.scratch = std::move(made.scratch);
  std::ranges::move(made.steps, std::back_inserter(out.steps));
  return laid;
}

}  // namespace lumen::synth
