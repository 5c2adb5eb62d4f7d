#include "model/infer/sample/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"

// Uses AVX2 if the processor has it, by the same operations with the same bits. (The resolver of function versions runs
// before a sanitizer's runtime starts.)
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LUMEN_WIDER_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define LUMEN_WIDER_VECTORS
#endif

namespace lumen::model {
namespace {

constexpr size_t kRun = TokenSet::kWord;  // numbers summed in f32
constexpr float kLowest = -87.0F;         // exp of lower values is not a normal f32
constexpr float kLog2E = 1.44269504F;
constexpr float kLog2High = 0.693145752F, kLog2Low = 1.42860677e-6F;  // their sum is log 2; n * kLog2High is exact

// The number, or 0. By bits: a conditional may become a branch, which prevents vectorization.
inline float if_true(bool condition, float number) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(number) & -int32_t{condition});
}

// exp(x) for kLowest <= x <= 0: 2^n times a polynomial of the remainder of x, whose magnitude is at most log(2) / 2.
inline float exp_of(float x) {
  const auto n = static_cast<int32_t>(x * kLog2E - 0.5F);
  const float whole = static_cast<float>(n), r = (x - whole * kLog2High) - whole * kLog2Low;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  return p * std::bit_cast<float>((n + 127) << 23);
}

}  // namespace

LUMEN_WIDER_VECTORS
double weights_of(std::span<const float> logits, const Weighing& how, const TokenSet& hidden, std::span<float> out,
                  std::span<float> sums) {
  LUMEN_CHECK(out.size() == logits.size() && sums.size() == (logits.size() + kRun - 1) / kRun);
  const float* const in = logits.data();
  float* const to = out.data();
  const Weighing w = how;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kRun) {
    const size_t count = std::min(kRun, logits.size() - i);
#pragma omp simd
    for (size_t j = 0; j < count; ++j) {
      const float x = (in[i + j] - w.best) * w.scale;
      const float weight = exp_of(if_true((x >= kLowest) & (x <= 0), x));
      to[i + j] = if_true((x >= kLowest) & (in[i + j] >= w.least), weight);
    }
    for (uint64_t bits = hidden.word(i / kRun); bits != 0; bits &= bits - 1) {
      const size_t j = std::countr_zero(bits);
      if (j < count) to[i + j] = 0;
    }
    // Eight partial sums, so that the order of additions does not depend on the vector width.
    float part[8] = {};
    size_t j = 0;
    for (; j + 8 <= count; j += 8) {
#pragma omp simd
      for (size_t k = 0; k < 8; ++k) part[k] += to[i + j + k];
    }
    for (; j < count; ++j) part[0] += to[i + j];
    const float all = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    sums[i / kRun] = all;
    sum += all;
  }
  return sum;
}

}  // namespace lumen::model
