// See stream_copies.h.
#include "kernel/synth/gemm/skinny/stream_copies.h"

#include <numeric>

namespace lumen::synth {

using Value = loop::ValueId;

namespace {

constexpr int64_t kLongestPiece = 16;

}  // namespace

StreamCopies::StreamCopies(DotWriter& w, const DotProblem& p, const Shape& shape, int64_t bytes, Value n0)
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

Value StreamCopies::clamped(Value row) {
  const Value n = w_.add(n0_, row);
  return p_.n.extent % shape_.rows == 0 ? n : w_.min(n, w_.i64(p_.n.extent - 1));
}

Value StreamCopies::memory_byte(Value row) {
  const DotLoad& b = p_.loads[1];
  Value base = w_.base(1);
  if (!b.format)
    base = w_.scaled(base, scalar_bytes(b.scalar));
  else
    base = w_.scaled(b_.op(ScalarOp::div_, base, w_.i64(b.format->block)), b.format->block_bytes);
  return w_.add(base, w_.scaled(clamped(row), bytes_of(p_, p_.n.strides[1])));  // rows are whole blocks
}

void StreamCopies::copy(Value row, Value byte, Value stage, Value number) {
  const int64_t step = shape_.step();
  Value begins = w_.scaled(stage, shape_.chunk);
  if (step < shape_.piece)
    begins = w_.scaled(b_.op(ScalarOp::div_, w_.scaled(stage, shape_.chunk / step), w_.i64(shape_.piece / step)),
                       shape_.piece);
  const Value in_row = w_.add(begins, byte);
  const auto copy = [&] {
    Value to = w_.scaled(number, shape_.stage_bytes);
    if (byte_ >= 0) to = w_.add(to, byte_);
    b_.copy(buffer_, w_.add(to, w_.add(w_.scaled(row, shape_.pitch), byte)), w_.buffer(1),
            w_.add(memory_byte(row), in_row), shape_.piece);
  };
  if (shape_.row_bytes % shape_.chunk != 0 || step < shape_.piece)
    b_.branch(b_.op(ScalarOp::lt_, in_row, w_.i64(shape_.row_bytes)), copy);
  else
    copy();
}

Value StreamCopies::shift(Value stage) {
  const int64_t step = shape_.step();
  if (step == shape_.piece) return w_.i64(0);
  return w_.scaled(b_.op(ScalarOp::rem_, w_.scaled(stage, shape_.chunk / step), w_.i64(shape_.piece / step)), step);
}

void StreamCopies::begin(Value lane, Value stage, Value number) {
  if (shape_.by_rows) return begin_rows(lane, stage, number);
  const int64_t across = shape_.chunk / shape_.piece, all = shape_.rows * across;
  for (int64_t first = 0; first < all; first += shape_.lanes) {
    const Value piece = w_.add(lane, w_.i64(first));
    const auto begin = [&] {
      const Value row = shape_.rows == 1 ? w_.i64(0) : b_.op(ScalarOp::div_, piece, w_.i64(across));
      const Value within = shape_.rows == 1 ? piece : b_.op(ScalarOp::rem_, piece, w_.i64(across));
      copy(row, w_.scaled(within, shape_.piece), stage, number);
    };
    if (first + shape_.lanes <= all)
      begin();
    else
      b_.branch(b_.op(ScalarOp::lt_, piece, w_.i64(all)), begin);
  }
}

void StreamCopies::begin_rows(Value lane, Value stage, Value number) {
  const int64_t across = shape_.copied() / shape_.piece, steps = (across + shape_.lanes - 1) / shape_.lanes;
  const int64_t beside = (across + steps - 1) / steps, together = shape_.lanes / beside;
  const Value first = b_.op(ScalarOp::div_, lane, w_.i64(beside)), column = b_.op(ScalarOp::rem_, lane, w_.i64(beside));
  const auto rows = [&](Value piece) {
    for (int64_t row = 0; row < shape_.rows; row += together) {
      const Value mine = w_.add(first, w_.i64(row));
      const auto one = [&] { copy(mine, w_.scaled(piece, shape_.piece), stage, number); };
      if (row + together <= shape_.rows)
        one();
      else
        b_.branch(b_.op(ScalarOp::lt_, mine, w_.i64(shape_.rows)), one);
    }
  };
  const auto all = [&] {
    for (int64_t step = 0; step < steps; ++step) {
      const Value piece = w_.add(column, w_.i64(step * beside));
      if ((step + 1) * beside <= across)
        rows(piece);
      else
        b_.branch(b_.op(ScalarOp::lt_, piece, w_.i64(across)), [&] { rows(piece); });
    }
  };
  if (together * beside == shape_.lanes)
    all();
  else
    b_.branch(b_.op(ScalarOp::lt_, lane, w_.i64(together * beside)), all);
}

}  // namespace lumen::synth
