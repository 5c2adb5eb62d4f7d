// Entries of fields at run-time indices: general and scalar. Proved by tests/kernel/synth/synth_codec_test.cpp.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

uint64_t low_mask(int bits) {
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

// Bit of the piece's lowest bit for a run-time element: the mixed-radix digits of (index - first) over the modes.
ValueId bit_of(loop::Builder& b, const LayoutPiece& piece, ValueId index) {
  ValueId rest = piece.first == 0 ? index : b.op(ScalarOp::sub_, index, b.i64(piece.first));
  ValueId bit = b.i64(piece.base);
  for (size_t k = piece.modes.size(); k-- > 0;) {
    const LayoutMode& mode = piece.modes[k];
    const ValueId digit = k == 0 ? rest : b.op(ScalarOp::rem_, rest, b.i64(mode.extent));
    bit = b.add(bit, b.mul(digit, b.i64(mode.stride)));
    if (k != 0) rest = b.op(ScalarOp::div_, rest, b.i64(mode.extent));
  }
  return bit;
}

// The largest power of two (at most 64) that divides every bit position of the piece.
int64_t granule(const LayoutPiece& piece) {
  int64_t g = piece.base | 64;
  for (const LayoutMode& mode : piece.modes)
    if (mode.extent > 1) g |= mode.stride;
  return g & -g;
}

// Bytes an entry may touch: its bits begin at a multiple of the granule.
int64_t bytes_touched(const LayoutPiece& piece) {
  const int64_t g = std::min<int64_t>(granule(piece), 8);
  return (8 - g + piece.bits + 7) / 8;
}

bool whole_bytes(const LayoutPiece& piece) {
  return granule(piece) >= 8 && (piece.bits == 8 || piece.bits == 16 || piece.bits == 32 || piece.bits == 64);
}

Scalar unsigned_of(int bits) {
  return bits == 8 ? Scalar::u8 : bits == 16 ? Scalar::u16 : bits == 32 ? Scalar::u32 : Scalar::u64;
}

// Calls body for the pieces that hold entry `index`, under a branch where that depends on a run-time index.
void for_pieces(loop::Builder& b, const Field& f, ValueId index, const std::function<void(const LayoutPiece&)>& body) {
  for (const LayoutPiece& piece : f.layout.pieces) {
    const auto known = b.known_integer(index);
    if (piece.first == 0 && piece.count == f.count) {
      body(piece);
    } else if (known) {
      if (*known >= piece.first && *known < piece.first + piece.count) body(piece);
    } else {
      const ValueId inside = b.op(ScalarOp::and_, b.op(ScalarOp::le_, b.i64(piece.first), index),
                                  b.op(ScalarOp::lt_, index, b.i64(piece.first + piece.count)));
      b.branch(inside, [&] { body(piece); });
    }
  }
}

}  // namespace

ValueId read_field(loop::Builder& b, const Field& f, BufferId buffer, ValueId record, ValueId index) {
  const Scalar wide = f.type.bits > 32 ? Scalar::u64 : Scalar::u32;
  const VType u64{Scalar::u64, 1};
  const bool one = f.layout.pieces.size() == 1 && f.layout.pieces[0].count == f.count;
  const BufferId code = one ? -1 : b.alloc(scalar_bytes(wide), scalar_bytes(wide));
  ValueId single = -1;
  if (!one) b.store(code, b.integer(0, {wide, 1}), b.i64(0), scalar_bytes(wide));
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const ValueId bit = bit_of(b, piece, index);
    const ValueId byte = b.add(record, b.op(ScalarOp::shr_, bit, b.i64(3)));
    ValueId x = -1;
    if (whole_bytes(piece)) {
      x = b.convert(ScalarOp::cast_, wide, b.load(buffer, {unsigned_of(piece.bits), 1}, byte, 1));
    } else {
      // Past-the-end bytes are never touched: byte j is read only where the entry reaches it, by clamping to its last
      // byte.
      const ValueId last = b.add(record, b.op(ScalarOp::shr_, b.add(bit, b.i64(piece.bits - 1)), b.i64(3)));
      const auto byte_at = [&](int64_t j) {
        const ValueId at = j == 0 ? byte : b.op(ScalarOp::min_, b.add(byte, b.i64(j)), last);
        return b.convert(ScalarOp::cast_, Scalar::u64, b.load(buffer, {Scalar::u8, 1}, at, 1));
      };
      const int64_t touched = bytes_touched(piece);
      for (int64_t j = 0; j < std::min<int64_t>(touched, 8); ++j) {
        ValueId y = byte_at(j);
        if (j > 0) y = b.op(ScalarOp::shl_, y, b.integer(8 * j, u64));
        x = x < 0 ? y : b.op(ScalarOp::or_, x, y);
      }
      const ValueId shift = b.convert(ScalarOp::cast_, Scalar::u64, b.op(ScalarOp::and_, bit, b.i64(7)));
      x = b.op(ScalarOp::shr_, x, shift);
      if (touched > 8) {  // what was shifted in comes from a ninth byte; by 64 places nothing
        const ValueId left = b.op(ScalarOp::sub_, b.integer(64, u64), shift);
        x = b.op(ScalarOp::or_, x, b.op(ScalarOp::shl_, byte_at(8), left));
      }
      x = b.op(ScalarOp::and_, x, b.integer(static_cast<int64_t>(low_mask(piece.bits)), u64));
      x = b.convert(ScalarOp::cast_, wide, x);
    }
    if (piece.value_bit != 0) x = b.op(ScalarOp::shl_, x, b.integer(piece.value_bit, {wide, 1}));
    if (one) {
      single = x;
    } else {
      b.store(code, b.op(ScalarOp::or_, b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide)), x), b.i64(0),
              scalar_bytes(wide));
    }
  });
  if (!one) single = b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide));
  return decode_codes(b, f.type, single);
}

void write_field(loop::Builder& b, const Field& f, BufferId buffer, ValueId record, ValueId index, ValueId value) {
  write_code(b, f, buffer, record, index, encode_value(b, f.type, value));
}

void write_code(loop::Builder& b, const Field& f, BufferId buffer, ValueId record, ValueId index, ValueId code) {
  const Scalar wide = b.type(code).scalar;
  const VType u64{Scalar::u64, 1}, u8{Scalar::u8, 1};
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const ValueId bit = bit_of(b, piece, index);
    const ValueId byte = b.add(record, b.op(ScalarOp::shr_, bit, b.i64(3)));
    ValueId x = code;
    if (piece.value_bit != 0) x = b.op(ScalarOp::shr_, x, b.integer(piece.value_bit, {wide, 1}));
    if (whole_bytes(piece)) {
      b.store(buffer, b.convert(ScalarOp::cast_, unsigned_of(piece.bits), x), byte, 1);
      return;
    }
    const ValueId mask = b.integer(static_cast<int64_t>(low_mask(piece.bits)), u64);
    x = b.op(ScalarOp::and_, b.convert(ScalarOp::cast_, Scalar::u64, x), mask);
    const ValueId shift = b.convert(ScalarOp::cast_, Scalar::u64, b.op(ScalarOp::and_, bit, b.i64(7)));
    const ValueId left = b.op(ScalarOp::sub_, b.integer(64, u64), shift);
    const ValueId ninth = b.op(ScalarOp::shr_, x, left);  // by 64 places nothing
    const ValueId keep_ninth = b.op(ScalarOp::not_, b.op(ScalarOp::shr_, mask, left));
    x = b.op(ScalarOp::shl_, x, shift);
    const ValueId keep = b.op(ScalarOp::not_, b.op(ScalarOp::shl_, mask, shift));
    const ValueId last = b.op(ScalarOp::shr_, b.add(bit, b.i64(piece.bits - 1)), b.i64(3));
    for (int64_t j = 0; j < bytes_touched(piece); ++j) {
      const auto put = [&] {
        const ValueId at = b.add(byte, b.i64(j));
        const auto part = [&](ValueId word, ValueId beyond) {
          return b.convert(ScalarOp::cast_, Scalar::u8,
                           j == 8 ? beyond : b.op(ScalarOp::shr_, word, b.integer(8 * j, u64)));
        };
        const ValueId kept = b.op(ScalarOp::and_, b.load(buffer, u8, at, 1), part(keep, keep_ninth));
        b.store(buffer, b.op(ScalarOp::or_, kept, part(x, ninth)), at, 1);
      };
      if (j == 0) {
        put();
      } else {
        b.branch(b.op(ScalarOp::le_, b.add(b.op(ScalarOp::shr_, bit, b.i64(3)), b.i64(j)), last), put);
      }
    }
  });
}

}  // namespace lumen::synth
