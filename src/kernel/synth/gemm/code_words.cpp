// See code_words.h.
#include "kernel/synth/gemm/code_words.h"

#include "kernel/synth/step/ceil_div.h"

namespace lumen::synth {
namespace {

constexpr int kWordBytes = 4;

bool holds(const machine::DotRow& row, const DotLoad& l) {
  if (l.kind != DotLoad::Kind::memory) return false;
  return l.scalar == row.a || (row.a == Scalar::i16 && (l.scalar == Scalar::i8 || l.scalar == Scalar::u8));
}

// Sums of two products of i16 wrap as sums of 32 bits do; bytes must not saturate.
bool is_exact(const machine::DotRow& row) {
  return row.acc == Scalar::i32 && row.a == row.b && row.k * scalar_bytes(row.a) == kWordBytes && row.pairs.empty() &&
         (row.a == Scalar::i16 || (row.a == Scalar::i8 && row.a_max >= 128));
}

Expr as_row(const machine::DotRow& row, Builder& b, Expr x) {
  return b.type(x).scalar == row.a ? x : cast(x, row.a);
}

}  // namespace

std::optional<machine::DotRow> dot_of_codes(const DotProblem& p, const machine::Machine& m) {
  if (!p.are_whole() || m.wave > 1 || !p.is_plain() || p.is_along_batch()) return {};
  if (p.k.strides[0] != 1 || p.k.strides[1] != 1) return {};
  std::optional<machine::DotRow> best;
  for (const machine::DotRow& row : m.dots)
    if (is_exact(row) && row.lanes == m.f32_lanes() && holds(row, p.loads[0]) && holds(row, p.loads[1]) &&
        (!best || row.k > best->k))
      best = row;
  return best;
}

DotProblem in_words(const DotProblem& p, int word) {
  DotProblem out = p;
  out.word = word;
  out.k_numbers = p.k.extent;
  out.k.extent = ceil_div(p.k.extent, word);
  for (int64_t& stride : out.k.strides) stride *= word;
  return out;
}

Expr read_words(DotWriter& w, const machine::DotRow& row, size_t load, Expr at, int words, Expr numbers) {
  return as_row(row, w.b, w.read(load, at, 1, words * row.k, numbers));
}

Expr read_words(DotWriter& w, const machine::DotRow& row, size_t load, Expr at, int words, int64_t numbers) {
  const int all = words * row.k;
  if (numbers >= all) return read_words(w, row, load, at, words, Expr{});
  Builder& b = w.b;
  Expr out = b.integer(0, {row.a, all});
  for (int64_t first = 0, piece = all; first < numbers; piece /= 2) {
    if (piece > numbers - first) continue;
    const Expr x = as_row(row, b, w.read(load, at + first, 1, piece, Expr{}));
    std::vector<int> mask(all, -1);
    for (int64_t i = 0; i < piece; ++i) mask[first + i] = i;
    out = out | (piece == 1 ? b.insert(b.integer(0, {row.a, all}), x, first) : b.shuffle({x}, mask));
    first += piece;
  }
  return out;
}

int64_t span_of_a(const DotProblem& p, const machine::DotRow& row) {
  if (p.loads[0].scalar == row.a) return 0;
  int64_t span = p.k_numbers + (p.m.extent - 1) * p.m.strides[0];
  for (const DotIndex& i : p.outer_k) span += (i.extent - 1) * i.strides[0];
  return span <= p.m.extent * p.k_total() * p.word ? span : 0;
}

Expr word_everywhere(Builder& b, const machine::DotRow& row, BufferId buffer, Expr byte, int align) {
  const Expr word = b.load(buffer, {row.b, row.k}, byte, align);
  std::vector<int> mask;
  for (int lane = 0; lane < row.lanes * row.k; ++lane) mask.push_back(lane % row.k);
  return b.shuffle({word}, mask);
}

Expr add_dot(Builder& b, const machine::DotRow& row, Expr weights, Expr x, Expr sum) {
  const VType result{row.acc, row.lanes};
  return row.accumulates ? b.inst(row.row, result, {sum, weights, x}) : sum + b.inst(row.row, result, {weights, x});
}

}  // namespace lumen::synth
