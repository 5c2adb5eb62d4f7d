// See pair_table.h.
#include "kernel/synth/unpack/pair_table.h"

#include <algorithm>
#include <bit>

namespace lumen::synth {

using loop::BufferId;
using loop::VType;
using Value = loop::ValueId;

namespace {

constexpr int kBanks = 32, kWordBytes = 4;

}  // namespace

int PairTable::copies_for(const machine::Machine& m) {
  int copies = kBanks;
  while (copies > 1 && kPairs * copies * kPairBytes * 4 > m.shared_bytes) copies /= 2;
  return copies;
}

PairTable::PairTable(loop::Builder& b, const machine::Machine& m, const Shape& shape)
    : b_(b), m_(m), shape_(shape), buffer_(b.alloc(shape.size(), 128, loop::Space::shared)) {}

// The table, by all lanes: each some of its bytes, from its own place on, so that neighbours write to other banks.
void PairTable::fill(Value lane, int64_t lanes) {
  const auto scaled = [&](Value x, int64_t y) { return b_.mul(x, b_.i64(y)); };
  const auto div = [&](Value x, int64_t y) { return b_.op(ScalarOp::div_, x, b_.i64(y)); };
  const auto rem = [&](Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, b_.i64(y)); };
  const int run = std::min(shape_.copies, kWordBytes), runs = shape_.copies / run;
  const VType word{Scalar::u32, 1};
  for (int64_t first = 0; first < kPairs; first += lanes) {
    const Value byte = b_.add(lane, b_.i64(first));
    const auto value = [&](Value code) {  // one of sixteen
      std::vector<Value> level;
      for (const uint16_t v : shape_.values) level.push_back(b_.integer(v, word));
      for (int64_t bit = 1; level.size() > 1; bit *= 2) {
        const Value set = b_.op(ScalarOp::ne_, b_.op(ScalarOp::and_, code, b_.i64(bit)), b_.i64(0));
        for (size_t k = 0; k < level.size() / 2; ++k)
          level[k] = b_.op(ScalarOp::select_, set, level[2 * k + 1], level[2 * k]);
        level.resize(level.size() / 2);
      }
      return level[0];
    };
    const Value high = b_.op(ScalarOp::shl_, value(div(byte, 16)), b_.integer(shape_.bytes ? 8 : 16, word));
    Value entry = b_.op(ScalarOp::or_, value(rem(byte, 16)), high);
    // Two bytes stand in both halves, so that two entries make a word by a mask.
    if (shape_.bytes) entry = b_.op(ScalarOp::or_, entry, b_.op(ScalarOp::shl_, entry, b_.integer(16, word)));
    const Value pair = b_.splat(entry, run);
    const auto put = [&] {
      for (int i = 0; i < runs; ++i) {
        const Value place = b_.add(scaled(byte, runs), rem(b_.add(lane, b_.i64(i)), runs));
        b_.store(buffer_, pair, scaled(place, run * kPairBytes), static_cast<int>(run * kPairBytes));
      }
    };
    if (first + lanes <= kPairs)
      put();
    else
      b_.branch(b_.op(ScalarOp::lt_, byte, b_.i64(kPairs)), put);
  }
}

std::vector<Value> PairTable::look_up(Unpack& cursor, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                                      VType type) {
  const VType bytes{Scalar::u8, static_cast<int>(low.size())}, word{Scalar::u32, 1};
  const int64_t place_bits = std::countr_zero(static_cast<uint64_t>(shape_.copies * kPairBytes));
  const Value copy = b_.convert(ScalarOp::cast_, Scalar::u32,
                                b_.mul(b_.op(ScalarOp::rem_, b_.lane_id(), b_.i64(shape_.copies)), b_.i64(kPairBytes)));
  const Value both = b_.op(ScalarOp::or_, cursor.codes(shape_.field, low, true, &m_),
                           b_.op(ScalarOp::shl_, cursor.codes(shape_.field, high, true, &m_), b_.integer(4, bytes)));
  const BufferId again = b_.alloc(static_cast<int64_t>(low.size()), 16);  // as words, which addresses are made of
  b_.store(again, both, b_.i64(0), 4);
  std::vector<Value> out;
  for (size_t k = 0; k < low.size(); ++k) {
    Value at = b_.load(again, word, b_.i64(static_cast<int64_t>(k / 4 * 4)), 4);
    const int64_t up = place_bits - static_cast<int64_t>(k % 4) * 8;
    at = up >= 0 ? b_.op(ScalarOp::shl_, at, b_.integer(up, word)) : b_.op(ScalarOp::shr_, at, b_.integer(-up, word));
    at = b_.op(ScalarOp::and_, at, b_.integer(int64_t{255} << place_bits, word));
    at = b_.convert(ScalarOp::cast_, Scalar::i64, b_.op(ScalarOp::or_, at, copy));
    out.push_back(b_.load(buffer_, type, at, 4));
  }
  return out;
}

}  // namespace lumen::synth
