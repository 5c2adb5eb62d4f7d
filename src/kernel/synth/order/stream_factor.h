// Dequantizes numbers of a packed row to a matrix instruction's factor, in the registers of a lane: 16-bit floats made
// of codes by as few operations as the format allows. The rest is applied to the f32 sums: scales and offsets of
// groups, and a constant that the codes lack. Formats enter through their layouts and routines. Proved by
// tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernel/synth/order/factor.h"
#include "kernel/synth/unpack/pair_table.h"

namespace lumen::synth {

// How a number is made in a register.
struct FactorForm {
  enum class Kind : uint8_t {
    plain,    // it is a 16-bit float in memory
    codes,    // a code of up to eight bits becomes the low mantissa bits of an f16 from 1024 on
    pairs,    // two codes of four bits, those of a byte, are looked up at once
    values,   // the code's number, computed in f32
    decoded,  // the same with its scale and offset
  } kind = Kind::decoded;
  Scalar to = Scalar::bf16, from = Scalar::bf16;  // plain: the type in memory
  ScaledForm scaled;
  int field = -1;    // of the codes
  int flipped = 0;   // bits of a code that are flipped, so that codes count numbers
  double least = 0;  // the number of code 0 then
  PairTable::Shape table;

  static constexpr double kFirst = 1024;  // of f16 that count by one
  // A number minus its factor; sums of activations are multiplied by it.
  double zero_point() const { return zero_point_at(0); }
  // The same where codes count 2^place each.
  double zero_point_at(int place) const { return kind == Kind::codes ? least * (1 << place) - kFirst : 0; }
  bool in_pairs(const Format& f) const;                      // codes are extracted from words two at a time
  int64_t mask_bytes(const Format& f, int64_t lanes) const;  // of shared memory, for that
  bool scales_sums() const { return kind != Kind::plain && kind != Kind::decoded && (scaled.scale || scaled.offset); }
  std::string_view name() const;
};
// The factor of a format with a scaled form. `by_code`: the number must depend on the code alone; else decoded. To f16,
// for more precision, if no number is out of its range.
FactorForm factor_form(const Format& f, const machine::Machine& m, bool by_code);

// For codes that are extracted from words in pairs: the power of two by which the factor of each of these elements is
// too large, because one shift serves several codes. Empty: none is. Activations compensate for it.
std::vector<int> code_places(const Format& f, const FactorForm& form, const std::vector<int64_t>& elements);

class StreamFactor {
 public:
  // In the code of a block of `lanes`; may allocate its shared memory. `aligned`: what cursors read begins at multiples
  // of four bytes.
  StreamFactor(Builder& b, const machine::Machine& m, const Format* f, const FactorForm& form, PairTable* table,
               bool aligned, int64_t lanes);

  // In a lane loop: writes what numbers() needs to shared memory, visible after a barrier; reads it, before numbers().
  void fill(Expr lane);
  void enter(Expr lane);

  // A vector of these elements of the entered blocks.
  Expr numbers(Unpack& cursor, const std::vector<int64_t>& elements);
  // Plain: `count` numbers from a byte on.
  Expr numbers(BufferId buffer, Expr byte, int count);

 private:
  Expr some(Unpack& cursor, const std::vector<int64_t>& elements);
  Expr of_codes(Unpack& cursor, const std::vector<int64_t>& elements);
  Expr of_pairs_of_codes(Unpack& cursor, const std::vector<int64_t>& elements);
  Expr of_pairs(Unpack& cursor, const std::vector<int64_t>& elements);
  Expr words(Unpack& cursor, const std::vector<int64_t>& elements, BufferId at);
  Expr below(Expr words, int64_t upper);
  Expr shortened(Expr x) { return cast(x, form_.to); }

  Builder& b_;
  const machine::Machine& m_;
  const FactorForm& form_;
  PairTable* table_;
  bool aligned_;
  BufferId mask_at_ = -1;
  int64_t mask_bits_ = 0;
  std::vector<Expr> masks_;  // by place
};

}  // namespace lumen::synth
