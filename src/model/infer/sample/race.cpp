#include "model/infer/sample/race.h"

#include <algorithm>
#include <cmath>

#include "graph/ir/eval.h"
#include "graph/ir/random.h"

namespace lumen::model::infer {
namespace {

// One salt for each kind of number that a draw takes.
constexpr uint32_t kOfDraws = 0x5a3b1e, kOfGroups = 0x5a3b1f, kOfTokens = 0x5a3b20, kOfFilters = 0x5a3b21;

// -log(1 - u), of a u in [0, 1) that is a multiple of 2^-24: 1 - u is exact in f32.
double exponential(double u) {
  return std::max(-std::log1p(-u), Race::kLeast);
}

}  // namespace

Race::Race(uint32_t seed, uint64_t number) : key_(graph::random_bits(seed, kOfDraws, number)) {}

double Race::of_group(int64_t group) const {
  return exponential(graph::uniform_random(key_, kOfGroups, static_cast<uint64_t>(group)));
}

// -log(1 - u) >= u.
void Race::least_of_groups(std::span<float> out) const {
  graph::uniform_randoms(key_, kOfGroups, out);
  for (float& x : out) x = std::max(x, float(kLeast));
}

double Race::least_of_token(text::TokenId id) const {
  return std::max(double{graph::uniform_random(key_, kOfTokens, static_cast<uint64_t>(id))}, kLeast);
}

double Race::of_token(text::TokenId id) const {
  return exponential(graph::uniform_random(key_, kOfTokens, static_cast<uint64_t>(id)));
}

double Race::of_filter() const {
  return graph::uniform_random(key_, kOfFilters, 0);
}

Formula Race::group_formula() {
  Formula f;
  f.inputs = {Scalar::f32};
  const int rest = f.op(ScalarOp::sub_, f.constant(Scalar::f32, 1), f.input(0));
  const int number = f.op(ScalarOp::neg_, f.op(ScalarOp::log_, rest));
  f.outputs = {f.op(ScalarOp::max_, number, f.constant(Scalar::f32, kLeast))};
  Formula key;
  key.inputs = {Scalar::i32};
  key.outputs = {key.convert(ScalarOp::bitcast_, Scalar::u32, key.input(0))};
  return compose(compose(f, 0, graph::random_formula(kOfGroups), 0), 0, key, 0);
}

}  // namespace lumen::model::infer
