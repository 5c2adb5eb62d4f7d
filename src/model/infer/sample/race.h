// The random numbers of one draw, as an exponential race: of things with weights w, the one with the largest w / E
// wins, where E are independent exponential random numbers; it wins with probability w / sum of w (the Gumbel-max
// trick, in the form without logarithms). A draw is two races: one of groups of tokens that follow each other in the
// vocabulary, by their sums of weights, and one of the tokens of the group that has won. No order of tokens is needed,
// and a device runs the first race for all rows of a step at once (narrowing/narrowing.h). Proved by
// tests/model/infer/sample/race_test.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "model/text/tokenizer/tokenizer.h"
#include "number/formula/formula.h"

namespace lumen::model::infer {

class Race {
 public:
  static constexpr int64_t kGroup = 128;  // tokens

  // Draw `number` (0, 1, ..) of a sampler with this seed.
  Race(uint32_t seed, uint64_t number);
  explicit Race(uint32_t key) : key_(key) {}
  uint32_t key() const { return key_; }

  // Exponential random numbers, at least kLeast.
  double of_group(int64_t group) const;
  double of_token(text::TokenId id) const;
  // Lower bounds of these numbers, which take no logarithm: of groups 0, 1, .., and of a token.
  void least_of_groups(std::span<float> out) const;
  double least_of_token(text::TokenId id) const;
  // Uniform in [0, 1): decides whether a filter that is used now and then is used at this draw.
  double of_filter() const;
  static constexpr double kLeast = 0x1p-25;

  // (group u32, key as i32) -> of_group as f32, within 1e-6 of it relative to it.
  static Formula group_formula();

 private:
  uint32_t key_;
};

}  // namespace lumen::model::infer
