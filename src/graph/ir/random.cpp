// Two keyed rounds of a 32-bit finaliser with low bias (xor-shift, multiply): the key mixes the counter bits, the
// second round keeps streams of different keys from being permutations of each other.
#include "graph/ir/random.h"

#include <algorithm>
#include <iterator>

#include "base/wider_vectors.h"
#include "graph/ir/eval.h"

namespace lumen::graph {

namespace {

// x ^= x >> s, x *= m for each pair, then a last xor-shift. Constants of C. Wellons' "triple32" (public domain).
struct Round {
  int shift;
  uint32_t multiplier;
};
constexpr Round kRounds[] = {{17, 0xed5ad4bb}, {11, 0xac4c1b51}, {15, 0x31848bab}};
constexpr int kLastShift = 14;
constexpr uint32_t kGolden = 0x9e3779b9;

// Without a loop, so that loops over many numbers become vectors.
[[gnu::always_inline]] inline uint32_t scramble(uint32_t x) {
  static_assert(std::size(kRounds) == 3);
  const auto round = [](uint32_t y, const Round& r) { return (y ^ (y >> r.shift)) * r.multiplier; };
  x = round(round(round(x, kRounds[0]), kRounds[1]), kRounds[2]);
  return x ^ (x >> kLastShift);
}

int scramble(Formula& f, int x) {
  for (const Round& r : kRounds) {
    x = f.op(ScalarOp::xor_, x, f.op(ScalarOp::shr_, x, f.integer(Scalar::u32, r.shift)));
    x = f.op(ScalarOp::mul_, x, f.integer(Scalar::u32, r.multiplier));
  }
  return f.op(ScalarOp::xor_, x, f.op(ScalarOp::shr_, x, f.integer(Scalar::u32, kLastShift)));
}

}  // namespace

uint32_t random_bits(uint32_t seed, uint32_t salt, uint64_t element) {
  const uint32_t counter = element + (element >> 32) * kGolden;
  const uint32_t key = scramble(seed ^ scramble(salt + kGolden));
  return scramble(scramble(counter ^ key) + key);
}

float uniform_random(uint32_t seed, uint32_t salt, uint64_t element) {
  return (random_bits(seed, salt, element) >> 8) * 0x1p-24f;
}

LUMEN_WIDER_VECTORS
void uniform_randoms(uint32_t seed, uint32_t salt, std::span<float> out) {
  const uint32_t key = scramble(seed ^ scramble(salt + kGolden));
  // A number of turns that is known makes vectors of a loop.
  constexpr size_t kTogether = 16;
  for (size_t first = 0; first < out.size(); first += kTogether) {
    float some[kTogether];
    // 24 bits are exact as signed numbers, too, whose conversion has an instruction everywhere.
    for (size_t k = 0; k < kTogether; ++k)
      some[k] = float(int32_t(scramble(scramble(uint32_t(first + k) ^ key) + key) >> 8)) * 0x1p-24f;
    std::copy_n(some, std::min(kTogether, out.size() - first), out.data() + first);
  }
}

uint32_t seed_as(uint32_t seed, uint32_t salt, uint32_t with) {
  return seed ^ scramble(salt + kGolden) ^ scramble(with + kGolden);
}

Formula random_formula(uint32_t salt) {
  Formula f;
  f.inputs = {Scalar::u32, Scalar::u32};
  const int seed = f.input(0), element = f.input(1);
  const int key = scramble(f, f.op(ScalarOp::xor_, seed, f.integer(Scalar::u32, scramble(salt + kGolden))));
  const int inner = scramble(f, f.op(ScalarOp::xor_, element, key));
  const int bits = scramble(f, f.op(ScalarOp::add_, inner, key));
  const int top = f.op(ScalarOp::shr_, bits, f.integer(Scalar::u32, 8));
  f.outputs = {f.op(ScalarOp::mul_, f.convert(ScalarOp::cast_, Scalar::f32, top), f.constant(Scalar::f32, 0x1p-24))};
  return f;
}

}  // namespace lumen::graph
