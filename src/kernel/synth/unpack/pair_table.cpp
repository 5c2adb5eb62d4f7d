// See pair_table.h.
#include "kernel/synth/unpack/pair_table.h"

#include <algorithm>
#include <bit>

namespace lumen::synth {

constexpr int kBanks = 32, kWordBytes = 4;

int PairTable::copies_for(const machine::Machine& m) {
  int copies = kBanks;
  while (copies > 1 && kPairs * copies * kPairBytes * 4 > m.shared_bytes) copies /= 2;
  return copies;
}

PairTable::PairTable(Builder& b, const machine::Machine& m, const Shape& shape)
    : b_(b), m_(m), shape_(shape), buffer_(b.alloc(shape.size(), 128, loop::Space::shared)) {}

// All lanes write the table: each some of its bytes, from its own place on, so that adjacent lanes write to other
// banks.
void PairTable::fill(Expr lane, int64_t lanes) {
  const int run = std::min(shape_.copies, kWordBytes), runs = shape_.copies / run;
  const VType word{Scalar::u32, 1};
  for (int64_t first = 0; first < kPairs; first += lanes) {
    const Expr byte = lane + first;
    const auto value = [&](Expr code) {  // one of sixteen
      std::vector<Expr> level;
      for (const uint16_t v : shape_.values) level.push_back(b_.integer(v, word));
      return choose(code, std::move(level));
    };
    const Expr high = value(byte / 16) << (shape_.bytes ? 8 : 16);
    Expr entry = value(byte % 16) | high;
    // Two bytes are in both halves, so that two entries make a word by a mask.
    if (shape_.bytes) entry = entry | (entry << 16);
    const Expr pair = b_.splat(entry, run);
    const auto put = [&] {
      for (int i = 0; i < runs; ++i) {
        const Expr place = byte * runs + (lane + i) % runs;
        b_.store(buffer_, pair, place * (run * kPairBytes), run * kPairBytes);
      }
    };
    if (first + lanes <= kPairs)
      put();
    else
      b_.branch(byte < kPairs, put);
  }
}

std::vector<Expr> PairTable::look_up(Unpack& cursor, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                                     VType type) {
  const VType word{Scalar::u32, 1};
  const int64_t place_bits = std::countr_zero(static_cast<uint64_t>(shape_.copies * kPairBytes));
  const Expr copy = cast(b_.lane_id() % shape_.copies * kPairBytes, Scalar::u32);
  const Expr both = cursor.codes(shape_.field, low, true, &m_) | (cursor.codes(shape_.field, high, true, &m_) << 4);
  const BufferId again = b_.alloc(std::ssize(low), 16);  // as words, for addresses
  b_.store(again, both, b_.i64(0), 4);
  std::vector<Expr> out;
  for (size_t k = 0; k < low.size(); ++k) {
    const int64_t up = place_bits - k % 4 * 8;
    const Expr at = shifted(b_.load(again, word, b_.i64(k / 4 * 4), 4), up) & (int64_t{255} << place_bits);
    out.push_back(b_.load(buffer_, type, cast(at | copy, Scalar::i64), 4));
  }
  return out;
}

}  // namespace lumen::synth
