// Builds the meanings of instructions as loop IR text, line by line.
#pragma once

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "kernel/loop/rules.h"
#include "kernel/machine/machine.h"

namespace lumen::machine {

// first, first + step, ... : `count` lanes.
inline std::vector<int> lanes_from(int first, int step, int count) {
  std::vector<int> lanes;
  for (int i = 0; i < count; ++i) lanes.push_back(first + step * i);
  return lanes;
}

// "f32" or "f32x4"
inline std::string lanes_of(Scalar s, int lanes) {
  return loop::print(loop::VType{s, lanes});
}

// Writes the lines of a function and numbers its values in order, operands first.
class Meaning {
 public:
  explicit Meaning(const std::vector<loop::VType>& operands) : next_(std::ssize(operands)) {
    for (const loop::VType& t : operands)
      params_ += fmt::format("{}%{}: {}", params_.empty() ? "" : ", ", count_++, loop::print(t));
  }

  template <typename... Args>
  int line(fmt::format_string<Args...> text, Args&&... args) {
    body_ += fmt::format("  %{} = {}\n", next_, fmt::format(text, std::forward<Args>(args)...));
    return next_++;
  }
  int shuffled(const std::string& type, int value, const std::vector<int>& mask) {
    return line("shuffle {} %{} [{}]", type, value, fmt::join(mask, ", "));
  }
  // Lanes first, first + step, ... of a value, widened.
  int widened(int value, Scalar from, int first, int step, int count, Scalar to) {
    const int lanes = shuffled(lanes_of(from, count), value, lanes_from(first, step, count));
    return line("cast {} %{}", lanes_of(to, count), lanes);
  }
  // f32 lanes with subnormals flushed to zero of the same sign.
  int normal(int value, int lanes) {
    const int bits = line("bitcast u32x{} %{}", lanes, value);
    const int exponent = line("and u32x{} %{}, %{}", lanes, bits, line("constant u32x{} 2139095040", lanes));
    const int sign = line("and u32x{} %{}, %{}", lanes, bits, line("constant u32x{} 2147483648", lanes));
    const int none = line("eq boolx{} %{}, %{}", lanes, exponent, line("constant u32x{} 0", lanes));
    return line("bitcast f32x{} %{}", lanes, line("select u32x{} %{}, %{}, %{}", lanes, none, sign, bits));
  }
  // Per lane the table entry at its index, for indices first .. first + count - 1; `found` for other indices.
  // mask(entry): the table lane that holds the entry, for each lane.
  template <typename Mask>
  int looked_up(loop::VType type, int table, int index, int first, int count, int found, const Mask& mask) {
    const std::string t = loop::print(type);
    for (int entry = first; entry < first + count; ++entry) {
      const int value = shuffled(t, table, mask(entry));
      const int number = line("constant {} {}", t, entry);
      const int hit = line("eq boolx{} %{}, %{}", type.lanes, index, number);
      found = line("select {} %{}, %{}, %{}", t, hit, value, found);
    }
    return found;
  }
  std::string function(const std::string& name, loop::VType result, int value) const {
    return fmt::format("func {}({}) -> {} {{\n{}  return %{}\n}}\n", name, params_, loop::print(result), body_, value);
  }

 private:
  int next_, count_ = 0;
  std::string params_, body_;
};

// Dots of bf16 pairs, in f32, as Arm's BFDOT adds them: each of the two sums is rounded to odd, so that its error is
// below an ulp, twice that of rounding to nearest. Subnormals are flushed to zero of the same sign.
std::string odd_dot_meaning(const std::string& name, int lanes);

// Tiles of one word along K (outer products), as Arm's matrix unit adds them: an f32 product is fused into the sum with
// one rounding; a pair of f16 products is added with one rounding and joins the sum with another; pairs of bf16 are
// added as above.
std::string outer_meaning(const TileRow& t);

}  // namespace lumen::machine
