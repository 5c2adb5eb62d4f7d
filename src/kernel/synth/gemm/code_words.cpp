// See code_words.h.
#include "kernel/synth/gemm/code_words.h"

#include <utility>

#include "base/round_up.h"

namespace lumen::synth {
namespace {

constexpr int kWordBytes = 4;

bool are_bytes(Scalar s) {
  return scalar_bytes(s) == 1;
}

bool becomes(Scalar from, Scalar to) {
  return from == to || (to == Scalar::i16 && are_bytes(from));
}

// Sums of two i16 products wrap as 32-bit sums do; dots of bytes must not saturate.
bool is_exact(const machine::DotRow& row) {
  if (row.acc != Scalar::i32 || !row.pairs.empty() || row.k * scalar_bytes(row.a) != kWordBytes) return false;
  if (row.a == Scalar::i16) return row.b == Scalar::i16;
  return row.b == Scalar::i8 &&
         ((row.a == Scalar::i8 && row.a_max >= 128) || (row.a == Scalar::u8 && row.a_max >= 255));
}

// The row applied to the operands, with b as its first or second factor; nullopt if it cannot multiply them.
std::optional<CodesDot> meets(const machine::DotRow& row, const DotProblem& p, bool is_b_first) {
  CodesDot d{row, is_b_first, 0};
  const Scalar from = p.loads[0].scalar, to = d.type_of(0);
  if (!becomes(p.loads[1].scalar, d.type_of(1))) return {};
  if (becomes(from, to)) return d;
  if (!are_bytes(from) || !are_bytes(to)) return {};
  d.shift = to == Scalar::u8 ? 128 : -128;
  return d;
}

Expr as_row(const CodesDot& row, Builder& b, size_t load, Expr x) {
  const Scalar to = row.type_of(load);
  return b.type(x).scalar == to ? x : cast(x, to);
}

// x plus the shift, modulo 256.
Expr shifted(const CodesDot& row, size_t load, Expr x) {
  return load == 0 && row.shift != 0 ? x ^ row.shift : x;
}

}  // namespace

std::optional<CodesDot> dot_of_codes(const DotProblem& p, const machine::Machine& m) {
  if (!p.are_whole() || m.wave > 1 || !p.is_plain() || p.is_along_batch()) return {};
  if (p.k.strides[0] != 1 || p.k.strides[1] != 1) return {};
  for (const DotLoad& l : {p.loads[0], p.loads[1]})
    if (l.kind != DotLoad::Kind::memory) return {};
  const auto is_better = [](const CodesDot& x, const CodesDot& y) {
    return x.k != y.k ? x.k > y.k : x.shift == 0 && y.shift != 0;
  };
  std::optional<CodesDot> best;
  for (const machine::DotRow& row : m.dots)
    for (const bool is_b_first : {true, false})
      if (is_exact(row) && row.lanes == m.f32_lanes())
        if (const auto d = meets(row, p, is_b_first); d && (!best || is_better(*d, *best))) best = d;
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

Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, Expr numbers) {
  return shifted(row, load, as_row(row, w.b, load, w.read(load, at, 1, words * row.k, numbers)));
}

Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, int64_t numbers) {
  const int all = words * row.k;
  if (numbers >= all) return read_words(w, row, load, at, words, Expr{});
  Builder& b = w.b;
  const VType type{row.type_of(load), all};
  Expr out = b.integer(0, type);
  for (int64_t first = 0, piece = all; first < numbers; piece /= 2) {
    if (piece > numbers - first) continue;
    const Expr x = as_row(row, b, load, w.read(load, at + first, 1, piece, Expr{}));
    std::vector<int> mask(all, -1);
    for (int64_t i = 0; i < piece; ++i) mask[first + i] = i;
    out = out | (piece == 1 ? b.insert(b.integer(0, type), x, first) : b.shuffle({x}, mask));
    first += piece;
  }
  return shifted(row, load, out);
}

int64_t span_of_a(const DotProblem& p, const CodesDot& row) {
  if (p.loads[0].scalar == row.type_of(0) && row.shift == 0) return 0;
  int64_t span = p.k_numbers + (p.m.extent - 1) * p.m.strides[0];
  for (const DotIndex& i : p.outer_k) span += (i.extent - 1) * i.strides[0];
  return span <= p.m.extent * p.k_total() * p.word ? span : 0;
}

Expr word_everywhere(Builder& b, const CodesDot& row, BufferId buffer, Expr byte, int align) {
  const Expr word = b.load(buffer, {row.type_of(0), row.k}, byte, align);
  std::vector<int> mask;
  for (int lane = 0; lane < row.lanes * row.k; ++lane) mask.push_back(lane % row.k);
  return b.shuffle({word}, mask);
}

Expr add_dot(Builder& b, const CodesDot& row, Expr right, Expr left, Expr sum) {
  const VType result{row.acc, row.lanes};
  if (!row.is_b_first) std::swap(right, left);
  return row.accumulates ? b.inst(row.row, result, {sum, right, left}) : sum + b.inst(row.row, result, {right, left});
}

Expr add_shift(Builder& b, const CodesDot& row, Expr right, Expr sum) {
  return add_dot(b, row, right, b.integer(row.shift, {row.type_of(0), row.lanes * row.k}), sum);
}

}  // namespace lumen::synth
