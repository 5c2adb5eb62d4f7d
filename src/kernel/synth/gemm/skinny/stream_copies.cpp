// See stream_copies.h.
#include "kernel/synth/gemm/skinny/stream_copies.h"

#include <numeric>

namespace lumen::synth {

using loop::Expr;

namespace {

constexpr int64_t kLongestPiece = 16;

}  // namespace

StreamCopies::StreamCopies(DotWriter& w, const DotProblem& p, const Shape& shape, int64_t bytes, Expr n0)
    : w_(w), b_(w.b), p_(p), shape_(shape), n0_(n0) {
  buffer_ = b_.alloc(bytes, 128, loop::Space::shared);
}

int64_t StreamCopies::bytes_of(const DotProblem& p, int64_t elements) {
  const DotLoad& b = p.loads[1];
  return b.format ? elements / b.format->block * b.format->block_bytes : elements * scalar_bytes(b.scalar);
}

int64_t StreamCopies::piece_of(const DotProblem& p, int64_t chunk, int64_t row_bytes) {
  int64_t all = std::gcd(kLongestPiece, std::gcd(chunk, row_bytes));
  const auto meet = [&](int64_t elements) { all = std::gcd(all, bytes_of(p, elements)); };
  meet(p.loads[1].offset);
  meet(p.n.strides[1]);
  for (const DotIndex& i : p.outer) meet(i.strides[1]);
  if (p.pick) meet(p.pick->stride);
  return all;
}

Expr StreamCopies::clamped(Expr row) {
  const Expr n = n0_ + row;
  return p_.n.extent % shape_.rows == 0 ? n : min(n, w_.i64(p_.n.extent - 1));
}

Expr StreamCopies::memory_byte(Expr row) {
  const DotLoad& b = p_.loads[1];
  Expr base = w_.base(1);
  if (!b.format)
    base = base * scalar_bytes(b.scalar);
  else
    base = base / b.format->block * b.format->block_bytes;
  return base + clamped(row) * bytes_of(p_, p_.n.strides[1]);  // rows are whole blocks
}

void StreamCopies::copy(Expr row, Expr byte, Expr stage, Expr number) {
  const int64_t step = shape_.step();
  Expr begins = stage * shape_.chunk;
  if (step < shape_.piece) begins = stage * (shape_.chunk / step) / (shape_.piece / step) * shape_.piece;
  const Expr in_row = begins + byte;
  const auto copy = [&] {
    Expr to = number * shape_.stage_bytes;
    if (byte_.exists()) to = to + byte_;
    b_.copy(buffer_, to + (row * shape_.pitch + byte), w_.buffer(1), memory_byte(row) + in_row, shape_.piece);
  };
  if (shape_.row_bytes % shape_.chunk != 0 || step < shape_.piece)
    b_.branch(in_row < shape_.row_bytes, copy);
  else
    copy();
}

Expr StreamCopies::shift(Expr stage) {
  const int64_t step = shape_.step();
  if (step == shape_.piece) return w_.i64(0);
  return stage * (shape_.chunk / step) % (shape_.piece / step) * step;
}

void StreamCopies::begin(Expr lane, Expr stage, Expr number) {
  if (shape_.by_rows) return begin_rows(lane, stage, number);
  const int64_t across = shape_.chunk / shape_.piece, all = shape_.rows * across;
  for (int64_t first = 0; first < all; first += shape_.lanes) {
    const Expr piece = lane + first;
    const auto begin = [&] {
      const Expr row = shape_.rows == 1 ? w_.i64(0) : piece / across;
      const Expr within = shape_.rows == 1 ? piece : piece % across;
      copy(row, within * shape_.piece, stage, number);
    };
    if (first + shape_.lanes <= all)
      begin();
    else
      b_.branch(piece < all, begin);
  }
}

void StreamCopies::begin_rows(Expr lane, Expr stage, Expr number) {
  const int64_t across = shape_.copied() / shape_.piece, steps = (across + shape_.lanes - 1) / shape_.lanes;
  const int64_t beside = (across + steps - 1) / steps, together = shape_.lanes / beside;
  const Expr first = lane / beside, column = lane % beside;
  const auto rows = [&](Expr piece) {
    for (int64_t row = 0; row < shape_.rows; row += together) {
      const Expr mine = first + row;
      const auto one = [&] { copy(mine, piece * shape_.piece, stage, number); };
      if (row + together <= shape_.rows)
        one();
      else
        b_.branch(mine < shape_.rows, one);
    }
  };
  const auto all = [&] {
    for (int64_t step = 0; step < steps; ++step) {
      const Expr piece = column + step * beside;
      if ((step + 1) * beside <= across)
        rows(piece);
      else
        b_.branch(piece < across, [&] { rows(piece); });
    }
  };
  if (together * beside == shape_.lanes)
    all();
  else
    b_.branch(lane < together * beside, all);
}

}  // namespace lumen::synth
