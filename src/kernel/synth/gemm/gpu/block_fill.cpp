// See block_fill.h.
#include "kernel/synth/gemm/gpu/block_fill.h"

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

using loop::BufferId;
using loop::VType;
using Value = loop::ValueId;
using Side = BlockProduct::Side;

BlockFill::BlockFill(DotWriter& w, const DotProblem& p, BlockProduct& product, const machine::Machine& m, Side side,
                     Supply supply)
    : w_(w),
      b_(w.b),
      p_(p),
      product_(product),
      m_(m),
      side_(side),
      supply_(supply),
      factor_(product.tile().factor),
      unit_(product.unit_elements()) {
  if (supply_ == Supply::transposed) down_ = unit_;
  if (supply_ == Supply::packed) along_ = std::min(p.loads[load()].format->block, product.tile().stage_k) / unit_;
  LUMEN_CHECK(rows() % down_ == 0 && product_.units() % along_ == 0, "pieces of {}x{}", down_, along_);
}

BlockFill::Piece BlockFill::piece(Value lane, int64_t round) {
  const int64_t across = product_.units() / along_;
  Value number = b_.add(lane, b_.i64(round * product_.tile().lanes()));
  if (pieces() % product_.tile().lanes() != 0) number = w_.min(number, b_.i64(pieces() - 1));
  return {w_.scaled(b_.op(ScalarOp::div_, number, b_.i64(across)), down_),
          w_.scaled(b_.op(ScalarOp::rem_, number, b_.i64(across)), along_)};
}

void BlockFill::where_piece(Value lane, int64_t round, int64_t all, const std::function<void()>& body) {
  const int64_t left = all - round * product_.tile().lanes();
  if (left >= product_.tile().lanes())
    body();
  else
    b_.branch(b_.op(ScalarOp::lt_, lane, b_.i64(left)), body);
}

Value BlockFill::row_in_memory(Value row) {
  const Value at = b_.add(first_row_, row);
  return index().extent % rows() == 0 ? at : w_.min(at, b_.i64(index().extent - 1));
}

Value BlockFill::zero_unit() {
  const VType type{factor_, static_cast<int>(unit_)};
  return is_float(factor_) ? b_.real(0, type) : b_.integer(0, type);
}

// How many of `most` numbers from `from` on come before `extent`.
Value BlockFill::count_left(Value from, int64_t extent, int64_t most) {
  return w_.min(b_.op(ScalarOp::max_, b_.op(ScalarOp::sub_, b_.i64(extent), from), b_.i64(0)), b_.i64(most));
}

// Each lane copies units that lie a fixed number of rows apart: what differs between them is a constant, or (rows that
// do not exist: the last one instead) little more.
void BlockFill::copy(Value lane, const Place& at, BufferId panel, Value to) {
  const bool beside = supply_ == Supply::beside;
  const int64_t bytes = scalar_bytes(factor_), stage = product_.tile().stage_k, lanes = product_.tile().lanes();
  // Units across: of k, in rows of a panel; of rows, where those lie beside each other. Down: the other.
  const int64_t across = beside ? rows() / unit_ : product_.units(), all = across * (beside ? stage : rows());
  const int64_t row_stride = beside ? 1 : index().strides[load()], k_stride = beside ? p_.k.strides[load()] : 1;
  const int64_t down_stride = beside ? k_stride : row_stride;
  const bool whole = index().extent % rows() == 0;
  // The panel's swizzle repeats every few rows.
  const int64_t apart = lanes % across == 0 && lanes / across % BlockProduct::kSwizzle == 0 ? lanes / across : 0;
  const auto place_of = [&](Value down, Value unit) {
    return b_.add(to, beside ? product_.transposed_place(side_, unit, down) : product_.place(side_, down, unit));
  };
  const Value origin =
      b_.add(b_.add(base_, at.outer), b_.add(w_.scaled(first_row_, row_stride), w_.scaled(at.k, k_stride)));
  const auto copy_rounds = [&](int64_t first, int64_t last, Value unit, Value down) {
    const Value k = b_.add(at.k, beside ? down : w_.scaled(unit, unit_));
    Value across_at = w_.scaled(unit, unit_);
    if (beside && !whole)
      across_at = w_.min(across_at, b_.op(ScalarOp::sub_, b_.i64(index().extent - unit_), first_row_));
    const Value place = place_of(down, unit), near = b_.add(origin, across_at);
    for (int64_t round = first; round < last; ++round) {
      const int64_t further = (round - first) * apart;
      Value element = -1;
      if (beside || whole) {
        element = b_.add(b_.add(near, w_.scaled(down, down_stride)), b_.i64(further * down_stride));
      } else {
        const auto narrow = [&](Value x) { return b_.convert(ScalarOp::cast_, Scalar::i32, x); };
        const Value last_row = b_.op(ScalarOp::sub_, b_.i64(index().extent - 1), first_row_);
        const Value row = w_.min(narrow(b_.add(down, b_.i64(further))), narrow(last_row));
        element = b_.add(near, w_.scaled(b_.convert(ScalarOp::cast_, Scalar::i64, row), down_stride));
      }
      const Value here = b_.add(place, b_.i64(further * product_.row_bytes(side_)));
      const auto begin = [&] {
        b_.copy(panel, here, w_.buffer(load()), w_.scaled(element, bytes), BlockProduct::kUnit);
      };
      if (p_.k.extent % stage == 0) {
        begin();
        continue;
      }
      b_.branch(b_.op(ScalarOp::lt_, beside ? b_.add(k, b_.i64(further)) : k, b_.i64(p_.k.extent)), begin,
                [&] { b_.store(panel, zero_unit(), here, static_cast<int>(BlockProduct::kUnit)); });
    }
  };
  const int64_t rounds = (all + lanes - 1) / lanes;
  const auto from = [&](int64_t first, int64_t last) {
    const Value number = b_.add(lane, b_.i64(first * lanes));
    copy_rounds(first, last, b_.op(ScalarOp::rem_, number, b_.i64(across)),
                b_.op(ScalarOp::div_, number, b_.i64(across)));
  };
  if (apart > 0 && all % lanes == 0) return from(0, rounds);
  for (int64_t round = 0; round < rounds; ++round) where_piece(lane, round, all, [&] { from(round, round + 1); });
}

std::vector<Value> BlockFill::fetch(Value lane, const Place& at, BufferId panel, Value to) {
  std::vector<Value> out;
  const bool ragged = p_.k.extent % product_.tile().stage_k != 0;
  for (int64_t round = 0; round < rounds(); ++round) {
    const Piece piece = this->piece(lane, round);
    if (supply_ == Supply::transposed) {
      fetch_transposed(piece, at, out);
    } else if (supply_ == Supply::packed) {
      const auto all = [&] { unpack(piece, at, panel, to); };
      where_piece(lane, round, pieces(), all);
    } else {
      const Value k = b_.add(at.k, w_.scaled(piece.unit, unit_));
      const bool masked = p_.k.strides[load()] == 1 && p_.loads[load()].kind == DotLoad::Kind::memory;
      const Value inside = ragged && !masked ? w_.min(k, b_.i64(p_.k.extent - 1)) : k;
      const Value element =
          b_.add(b_.add(base_, at.outer), b_.add(w_.scaled(row_in_memory(piece.row), index().strides[load()]),
                                                 w_.scaled(inside, p_.k.strides[load()])));
      const Value count = ragged ? count_left(k, p_.k.extent, unit_) : -1;
      const Value x = w_.read(load(), element, p_.k.strides[load()], static_cast<int>(unit_), count);
      Value y = b_.type(x).scalar == factor_ ? x : b_.convert(ScalarOp::cast_, factor_, x);
      if (ragged && !masked) {
        std::vector<int64_t> numbers;
        for (int64_t i = 0; i < unit_; ++i) numbers.push_back(i);
        const Value exists =
            b_.op(ScalarOp::lt_, b_.lanes_integer(numbers, Scalar::i64), b_.splat(count, static_cast<int>(unit_)));
        y = b_.op(ScalarOp::select_, exists, y, zero_unit());
      }
      out.push_back(y);
    }
  }
  return out;
}

// As many numbers of k as a unit holds, of as many rows, which lie beside each other in memory.
void BlockFill::fetch_transposed(const Piece& piece, const Place& at, std::vector<Value>& out) {
  const DotLoad& l = p_.loads[load()];
  const auto lanes = static_cast<int>(unit_);
  const Value row = b_.add(first_row_, piece.row);
  const bool whole_rows = index().extent % rows() == 0, whole_k = p_.k.extent % product_.tile().stage_k == 0;
  Value count = whole_rows ? -1 : count_left(row, index().extent, unit_);
  std::vector<Value> tile;
  for (int64_t i = 0; i < unit_; ++i) {
    const Value k = b_.add(at.k, b_.add(w_.scaled(piece.unit, unit_), b_.i64(i)));
    Value here = count;
    if (!whole_k)
      here = b_.op(ScalarOp::select_, b_.op(ScalarOp::lt_, k, b_.i64(p_.k.extent)), whole_rows ? b_.i64(unit_) : count,
                   b_.i64(0));
    const Value element = b_.add(b_.add(base_, at.outer), b_.add(row, w_.scaled(k, p_.k.strides[load()])));
    const Value x = w_.read(load(), element, 1, lanes, here);
    tile.push_back(l.scalar == factor_ ? x : b_.convert(ScalarOp::cast_, factor_, x));
  }
  transpose(b_, tile);
  out.insert(out.end(), tile.begin(), tile.end());
}

void BlockFill::unpack(const Piece& piece, const Place& at, BufferId panel, Value to) {
  const DotLoad& l = p_.loads[load()];
  const int64_t block = l.format->block;
  Unpack cursor(b_, *l.format, w_.buffer(load()), l.rows, l.columns);
  cursor.use(m_);
  const Value element = b_.add(b_.add(base_, at.outer), w_.scaled(row_in_memory(piece.row), index().strides[load()]));
  cursor.enter_row(b_.op(ScalarOp::div_, element, b_.i64(l.columns)));
  // Behind the end of K the last block is read again, and not used.
  Value k = b_.add(at.k, w_.scaled(piece.unit, unit_));
  const bool ragged = p_.k.extent % product_.tile().stage_k != 0;
  const Value exists = ragged ? b_.op(ScalarOp::lt_, k, b_.i64(p_.k.extent)) : -1;
  if (ragged) k = w_.min(k, b_.i64(p_.k.extent - along_ * unit_));
  cursor.enter_block(b_.op(ScalarOp::div_, b_.add(element, k), b_.i64(block)));
  for (int64_t i = 0; i < along_; ++i) {
    const Value x = cursor.values(at.position + i * unit_, static_cast<int>(unit_));
    Value y = factor_ == Scalar::f32 ? x : b_.convert(ScalarOp::cast_, factor_, x);
    if (ragged) y = b_.op(ScalarOp::select_, b_.splat(exists, static_cast<int>(unit_)), y, zero_unit());
    b_.store(panel, y, b_.add(to, product_.place(side_, piece.row, piece.unit, i, along_)),
             static_cast<int>(BlockProduct::kUnit));
  }
}

void BlockFill::put(Value lane, const std::vector<Value>& held, BufferId panel, Value to) {
  if (supply_ == Supply::packed) return;
  size_t next = 0;
  for (int64_t round = 0; round < rounds(); ++round) {
    const Piece piece = this->piece(lane, round);
    const size_t first = next;
    const auto all = [&] {
      next = first;
      for (int64_t row = 0; row < down_; ++row)
        for (int64_t unit = 0; unit < along_; ++unit)
          b_.store(panel, held[next++],
                   b_.add(to, product_.place(side_, b_.add(piece.row, b_.i64(row)), piece.unit, unit, along_)),
                   static_cast<int>(BlockProduct::kUnit));
    };
    where_piece(lane, round, pieces(), all);
  }
}

}  // namespace lumen::synth
