// See lane_pass.h.
#include "kernel/synth/order/lane_pass.h"

#include "base/check.h"
#include "kernel/synth/unpack/bits_as.h"

namespace lumen::synth {

Expr as_words(Builder& b, Expr x) {
  const VType type = b.type(x);
  const int64_t bytes = scalar_bytes(type.scalar) * type.lanes;
  LUMEN_CHECK(bytes == 2 || bytes % 4 == 0, "words of {} bytes", bytes);
  return bits_as(b, x, bytes == 2 ? VType{Scalar::u16, 1} : VType{Scalar::u32, static_cast<int>(bytes / 4)});
}

Expr beside_each_other(Builder& b, const std::vector<Expr>& items) {
  const VType type = b.type(items[0]);
  const int64_t bytes = scalar_bytes(type.scalar) * type.lanes;
  const int count = items.size();
  const BufferId memory = b.alloc(bytes * count, 16);
  for (int i = 0; i < count; ++i) b.store(memory, items[i], b.i64(i * bytes), 2);
  return b.load(memory, {type.scalar, type.lanes * count}, b.i64(0), 16);
}

// For each bit of a lane's number: swaps half of the items with the lane whose bit differs.
std::vector<Expr> pass_among_lanes(Builder& b, Expr number, int stride, std::vector<Expr> items) {
  const int count = items.size();
  LUMEN_CHECK((count & (count - 1)) == 0, "{} lanes", count);
  const int lanes = b.type(items[0]).lanes;
  for (int bit = 1; bit < count; bit *= 2) {
    const Expr other = b.lane_id() ^ (int64_t{bit} * stride);
    const Expr set = (number & bit) != 0;
    const auto choose = [&](Expr x, Expr y) { return select(lanes > 1 ? b.splat(set, lanes) : set, x, y); };
    for (int i = 0; i < count; ++i) {
      if (i & bit) continue;
      Expr &low = items[i], &high = items[i + bit];
      const Expr got = b.wave_shuffle(choose(low, high), other);
      low = choose(got, low);
      high = choose(high, got);
    }
  }
  return items;
}

}  // namespace lumen::synth
