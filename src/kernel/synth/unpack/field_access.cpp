// Entries of fields at run-time indices: general and scalar. Proved by tests/kernel/synth/synth_codec_test.cpp.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

namespace {

// Bit of the piece's lowest bit for a run-time element: the mixed-radix digits of (index - first) over the modes.
Expr bit_of(Builder& b, const LayoutPiece& piece, Expr index) {
  Expr rest = piece.first == 0 ? index : index - piece.first;
  Expr bit = b.i64(piece.base);
  for (size_t k = piece.modes.size(); k-- > 0;) {
    const LayoutMode& mode = piece.modes[k];
    const Expr digit = k == 0 ? rest : rest % mode.extent;
    bit = bit + digit * mode.stride;
    if (k != 0) rest = rest / mode.extent;
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

// Calls body for the pieces that hold entry `index`, under a branch where that depends on a run-time index.
void for_pieces(Builder& b, const Field& f, Expr index, const std::function<void(const LayoutPiece&)>& body) {
  for (const LayoutPiece& piece : f.layout.pieces) {
    const auto known = b.known_integer(index);
    if (piece.first == 0 && piece.count == f.count) {
      body(piece);
    } else if (known) {
      if (holds(piece, *known)) body(piece);
    } else {
      const Expr inside = (piece.first <= index) & (index < piece.first + piece.count);
      b.branch(inside, [&] { body(piece); });
    }
  }
}

}  // namespace

Expr read_field(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index) {
  const Scalar wide = code_type(f.type);
  const bool one = f.layout.pieces.size() == 1 && f.layout.pieces[0].count == f.count;
  const BufferId code = one ? -1 : b.alloc(scalar_bytes(wide), scalar_bytes(wide));
  Expr single;
  if (!one) b.store(code, b.integer(0, {wide, 1}), b.i64(0), scalar_bytes(wide));
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const Expr bit = bit_of(b, piece, index);
    const Expr byte = record + (bit >> 3);
    Expr x;
    if (whole_bytes(piece)) {
      x = cast(b.load(buffer, {unsigned_of(piece.bits), 1}, byte, 1), wide);
    } else {
      // Past-the-end bytes are never touched: byte j is read only where the entry reaches it, by clamping to its last
      // byte.
      const Expr last = record + ((bit + (piece.bits - 1)) >> 3);
      const auto byte_at = [&](int64_t j) {
        const Expr at = j == 0 ? byte : min(byte + j, last);
        return cast(b.load(buffer, {Scalar::u8, 1}, at, 1), Scalar::u64);
      };
      const int64_t touched = bytes_touched(piece);
      for (int64_t j = 0; j < std::min<int64_t>(touched, 8); ++j) {
        join(x, shifted(byte_at(j), 8 * j));
      }
      const Expr shift = cast(bit & 7, Scalar::u64);
      x = x >> shift;
      if (touched > 8) {  // a ninth byte fills what was shifted in; a shift by 64 gives 0
        const Expr left = 64 - shift;
        x = x | (byte_at(8) << left);
      }
      x = x & static_cast<int64_t>(low_mask(piece.bits));
      x = cast(x, wide);
    }
    x = shifted(x, piece.value_bit);
    if (one) {
      single = x;
    } else {
      b.store(code, b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide)) | x, b.i64(0), scalar_bytes(wide));
    }
  });
  if (!one) single = b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide));
  return decode_codes(b, f.type, single);
}

void write_field(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index, Expr value) {
  write_code(b, f, buffer, record, index, encode_value(b, f.type, value));
}

void write_code(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index, Expr code) {
  const VType u64{Scalar::u64, 1}, u8{Scalar::u8, 1};
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const Expr bit = bit_of(b, piece, index);
    const Expr byte = record + (bit >> 3);
    Expr x = shifted(code, -piece.value_bit);
    if (whole_bytes(piece)) {
      b.store(buffer, cast(x, unsigned_of(piece.bits)), byte, 1);
      return;
    }
    const Expr mask = b.integer(low_mask(piece.bits), u64);
    x = cast(x, Scalar::u64) & mask;
    const Expr shift = cast(bit & 7, Scalar::u64);
    const Expr left = 64 - shift;
    const Expr ninth = x >> left;  // a shift by 64 gives 0
    const Expr keep_ninth = !(mask >> left);
    x = x << shift;
    const Expr keep = !(mask << shift);
    const Expr last = (bit + (piece.bits - 1)) >> 3;
    for (int64_t j = 0; j < bytes_touched(piece); ++j) {
      const auto put = [&] {
        const Expr at = byte + j;
        const auto part = [&](Expr word, Expr beyond) { return cast(j == 8 ? beyond : word >> (8 * j), Scalar::u8); };
        const Expr kept = b.load(buffer, u8, at, 1) & part(keep, keep_ninth);
        b.store(buffer, kept | part(x, ninth), at, 1);
      };
      if (j == 0) {
        put();
      } else {
        b.branch((bit >> 3) + j <= last, put);
      }
    }
  });
}

}  // namespace lumen::synth
