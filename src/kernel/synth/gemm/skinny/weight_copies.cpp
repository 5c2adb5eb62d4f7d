// See weight_copies.h.
#include "kernel/synth/gemm/skinny/weight_copies.h"

#include <numeric>

#include "base/check.h"

namespace lumen::synth {

namespace {

constexpr int64_t kLongestVector = 16;

}  // namespace

WeightCopies::WeightCopies(DotWriter& w, const DotProblem& p, const Shape& shape, int64_t bytes, Expr n0)
    : w_(w), b_(w.b), p_(p), shape_(shape), n0_(n0) {
  buffer_ = b_.alloc(bytes, 128, loop::Space::shared);
}

int64_t WeightCopies::bytes_of(const DotProblem& p, int64_t elements, size_t load) {
  const DotLoad& b = p.loads[load];
  return b.format ? elements / b.format->block * b.format->block_bytes : elements * scalar_bytes(b.scalar);
}

int64_t WeightCopies::vector_of(const DotProblem& p, int64_t chunk, int64_t row_bytes, size_t load) {
  int64_t all = std::gcd(kLongestVector, std::gcd(chunk, row_bytes));
  const auto divides = [&](int64_t elements) { all = std::gcd(all, bytes_of(p, elements, load)); };
  divides(p.loads[load].offset);
  divides((load == 1 ? p.n : p.m).strides[load]);
  for (const DotIndex& i : p.outer) divides(i.strides[load]);
  if (p.pick) divides(p.pick->stride);
  return all;
}

Expr WeightCopies::clamped(Expr row) {
  const Expr n = n0_ + row;
  return rows().extent % shape_.rows == 0 ? n : min(n, w_.i64(rows().extent - 1));
}

Expr WeightCopies::memory_byte(Expr row) {
  const DotLoad& b = p_.loads[shape_.load];
  Expr base = w_.base(shape_.load);
  if (!b.format)
    base = base * scalar_bytes(b.scalar);
  else
    base = base / b.format->block * b.format->block_bytes;
  return base + clamped(row) * bytes_of(p_, rows().strides[shape_.load], shape_.load);  // rows are whole blocks
}

void WeightCopies::copy(Expr row, Expr byte, Expr stage, Expr number) {
  const int64_t step = shape_.step();
  Expr begins = stage * shape_.chunk;
  if (step < shape_.vector) begins = stage * (shape_.chunk / step) / (shape_.vector / step) * shape_.vector;
  const Expr in_row = begins + byte;
  const auto copy = [&] {
    Expr to = number * shape_.stage_bytes;
    if (byte_.exists()) to = to + byte_;
    b_.copy(buffer_, to + (row * shape_.pitch + byte), w_.buffer(shape_.load), memory_byte(row) + in_row,
            shape_.vector);
  };
  const bool whole = shape_.row_bytes % shape_.chunk == 0 && step == shape_.vector;
  w_.where(whole ? Expr{} : in_row < shape_.row_bytes, copy);
}

Expr WeightCopies::shift(Expr stage) {
  const int64_t step = shape_.step();
  if (step == shape_.vector) return w_.i64(0);
  return stage * (shape_.chunk / step) % (shape_.vector / step) * step;
}

void WeightCopies::begin(Expr lane, Expr stage, Expr number) {
  if (shape_.by_rows) return begin_rows(lane, stage, number);
  LUMEN_CHECK(shape_.rows == 1, "{} rows, piece by piece", shape_.rows);
  const int64_t all = shape_.chunk / shape_.vector;
  for (int64_t first = 0; first < all; first += shape_.lanes) {
    const Expr vector = lane + first;
    w_.where(first + shape_.lanes <= all ? Expr{} : vector < all,
             [&] { copy(w_.i64(0), vector * shape_.vector, stage, number); });
  }
}

void WeightCopies::begin_rows(Expr lane, Expr stage, Expr number) {
  const int64_t across = shape_.copied() / shape_.vector, steps = (across + shape_.lanes - 1) / shape_.lanes;
  const int64_t beside = (across + steps - 1) / steps, together = shape_.lanes / beside;
  const Expr first = lane / beside, column = lane % beside;
  const auto copy_rows = [&](Expr vector) {
    for (int64_t row = 0; row < shape_.rows; row += together) {
      const Expr mine = first + row;
      w_.where(row + together <= shape_.rows ? Expr{} : mine < shape_.rows,
               [&] { copy(mine, vector * shape_.vector, stage, number); });
    }
  };
  const auto all = [&] {
    for (int64_t step = 0; step < steps; ++step) {
      const Expr vector = column + step * beside;
      w_.where((step + 1) * beside <= across ? Expr{} : vector < across, [&] { copy_rows(vector); });
    }
  };
  w_.where(together * beside == shape_.lanes ? Expr{} : lane < together * beside, all);
}

}  // namespace lumen::synth
