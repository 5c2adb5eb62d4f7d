// Bit positions of a field: the one layout algebra of the project (fields today; tiles and matrix fragments later). A
// layout is a list of pieces. A piece places bits [value_bit, value_bit + bits) of element i, for i in [first, first +
// count), at bit  base + sum_k digit_k(i - first) * stride_k  of the block, little-endian, where the digits are the
// mixed-radix digits of (i - first) over the modes, slowest mode first. Invariant (verify): pieces of one field cover
// every bit of every element exactly once and stay inside the block. Proved by tests/number/format/layout_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace lumen {

struct LayoutMode {
  int64_t extent = 1;
  int64_t stride = 0;  // bits
  friend bool operator==(const LayoutMode&, const LayoutMode&) = default;
};

struct LayoutPiece {
  int64_t first = 0, count = 0;     // elements
  int value_bit = 0, bits = 0;      // bits of the value
  int64_t base = 0;                 // bit in the block (or in the level's record)
  std::vector<LayoutMode> modes;    // product of extents == count
  int64_t bit_of(int64_t i) const;  // position of the piece's lowest bit for element i
  friend bool operator==(const LayoutPiece&, const LayoutPiece&) = default;
};

struct Layout {
  std::vector<LayoutPiece> pieces;

  static Layout dense(int64_t count, int bits, int64_t base);

  // Reads or writes the raw bits (at most 64) of element i in a record of `bytes`.
  uint64_t read(const uint8_t* record, int64_t i) const;
  void write(uint8_t* record, int64_t i, uint64_t value) const;
  int64_t end_bit() const;  // one past the last bit used
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Internal errors fail a LUMEN_CHECK; user errors are found by the format reader, which calls `covers`.
bool covers(const Layout& layout, int64_t count, int bits);

}  // namespace lumen
