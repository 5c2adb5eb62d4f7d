// Two keyed rounds of a 32-bit finaliser with low bias (xor-shift, multiply): the key mixes the counter bits, the
// second round keeps streams of different keys from being permutations of each other.
#include "graph/ir/random.h"

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

uint32_t scramble(uint32_t x) {
  for (const Round& r : kRounds) x = (x ^ (x >> r.shift)) * r.multiplier;
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

void uniform_randoms(uint32_t seed, uint32_t salt, std::span<float> out) {
  const uint32_t key = scramble(seed ^ scramble(salt + kGolden));
  for (size_t i = 0; i < out.size(); ++i) out[i] = (scramble(scramble(uint32_t(i) ^ key) + key) >> 8) * 0x1p-24f;
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
