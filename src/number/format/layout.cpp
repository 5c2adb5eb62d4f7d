// Reads and writes bits at the positions of a layout. Must not depend on their meaning. Proved by
// tests/number/format/layout_test.cpp.
#include "number/format/layout.h"

#include <algorithm>

#include "base/check.h"

namespace lumen {
namespace {

uint64_t read_bits(const uint8_t* record, int64_t bit, int count) {
  uint64_t value = 0;
  for (int done = 0; done < count;) {
    const int64_t at = bit + done;
    const int offset = at % 8;
    const int take = std::min(8 - offset, count - done);
    const uint64_t part = (record[at / 8] >> offset) & ((1 << take) - 1);
    value |= part << done;
    done += take;
  }
  return value;
}

void write_bits(uint8_t* record, int64_t bit, int count, uint64_t value) {
  for (int done = 0; done < count;) {
    const int64_t at = bit + done;
    const int offset = at % 8;
    const int take = std::min(8 - offset, count - done);
    const int mask = ((1 << take) - 1) << offset;
    const int part = static_cast<int>((value >> done) << offset) & mask;
    record[at / 8] = (record[at / 8] & ~mask) | part;
    done += take;
  }
}

uint64_t low_bits(uint64_t value, int count) {
  return count >= 64 ? value : value & ((uint64_t{1} << count) - 1);
}

}  // namespace

int64_t LayoutPiece::bit_of(int64_t i) const {
  int64_t rest = i - first;
  int64_t bit = base;
  for (size_t k = modes.size(); k-- > 0;) {
    bit += rest % modes[k].extent * modes[k].stride;
    rest /= modes[k].extent;
  }
  return bit;
}

Layout Layout::dense(int64_t count, int bits, int64_t base) {
  return Layout{{LayoutPiece{0, count, 0, bits, base, {LayoutMode{count, bits}}}}};
}

uint64_t Layout::read(const uint8_t* record, int64_t i) const {
  uint64_t value = 0;
  for (const LayoutPiece& piece : pieces) {
    if (i < piece.first || i >= piece.first + piece.count) continue;
    value |= read_bits(record, piece.bit_of(i), piece.bits) << piece.value_bit;
  }
  return value;
}

void Layout::write(uint8_t* record, int64_t i, uint64_t value) const {
  for (const LayoutPiece& piece : pieces) {
    if (i < piece.first || i >= piece.first + piece.count) continue;
    write_bits(record, piece.bit_of(i), piece.bits, low_bits(value >> piece.value_bit, piece.bits));
  }
}

int64_t Layout::end_bit() const {
  int64_t end = 0;
  for (const LayoutPiece& piece : pieces) {
    int64_t last = piece.base + piece.bits;
    for (const LayoutMode& mode : piece.modes) last += (mode.extent - 1) * mode.stride;
    end = std::max(end, last);
  }
  return end;
}

bool covers(const Layout& layout, int64_t count, int bits) {
  if (bits < 1 || bits > 64 || count < 1) return false;
  std::vector<uint64_t> seen(count, 0);
  for (const LayoutPiece& piece : layout.pieces) {
    if (piece.first < 0 || piece.count < 1 || piece.first > count - piece.count) return false;
    if (piece.bits < 1 || piece.value_bit < 0 || piece.value_bit > bits - piece.bits || piece.base < 0) return false;
    int64_t product = 1;
    for (const LayoutMode& mode : piece.modes) {
      if (mode.extent < 1 || mode.stride < 0 || mode.extent > piece.count / product) return false;
      product *= mode.extent;
    }
    if (product != piece.count) return false;
    const uint64_t mask = low_bits(~uint64_t{0}, piece.bits) << piece.value_bit;
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
      uint64_t& entry = seen[i];
      if (entry & mask) return false;
      entry |= mask;
    }
  }
  const uint64_t all = low_bits(~uint64_t{0}, bits);
  return std::all_of(seen.begin(), seen.end(), [&](uint64_t entry) { return entry == all; });
}

}  // namespace lumen
