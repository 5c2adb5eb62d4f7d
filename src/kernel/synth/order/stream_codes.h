// Codes of a unit of a streamed weight as operands of an integer dot of bytes, by as few operations as the layout
// allows: bytes of memory, masked, with the bits in place; the powers of two that those bits count are applied to the
// sums. Codes of four bits with a table become bytes by the machine's permutation of registers, digit by digit. Derived
// from the layout and the numbers of the codes. Proved by tests/kernel/synth/gemm/stream_codes_test.cpp.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "kernel/synth/order/factor.h"

namespace lumen::synth {

struct StreamCodes {
  // Bits of four elements, each at the same position of its byte.
  struct Part {
    std::array<int64_t, 4> bytes{};  // of the unit
    int mask = 255, flip = 0;        // bits that are kept; of those, flipped
    int down = 0;                    // then the word is shifted right by so many bits, for dots of signed bytes
    int exponent = 0;                // the byte's lowest bit then counts 2^exponent
  };
  // The four elements of one dot.
  struct Run {
    std::array<int64_t, 4> elements{};
    std::vector<Part> parts;  // of a table: one, whose first two bytes have the codes
  };
  std::vector<Run> runs;
  // Digits of the table's numbers, below 128, the most significant first; none: codes are the numbers.
  std::vector<std::array<uint8_t, 16>> digits;
  // Numbers of codes of four bits, as bytes, for the machine's byte permutation. Empty: codes are the numbers.
  std::vector<int64_t> table;
  int least = 0;              // exponent of the sums
  double step = 1, bias = 0;  // an element's number is step * (its code or digits + bias)
  bool rounds = false;        // the table's numbers had to be rounded to such sums

  // The order of a unit's elements, run by run.
  LaneOrder order(int64_t unit) const;
};

// For codes that count numbers, or index d's table, in groups of d.fine elements; nullopt if their layout does not
// allow it.
std::optional<StreamCodes> stream_codes(const Format& f, const IntegerDot& d, int64_t unit, const machine::Machine& m);

// A table of sixteen numbers, as digits; they may be rounded.
struct TableCodes {
  IntegerDot dot;  // the form, its groups and the row
  StreamCodes codes;
};
std::optional<TableCodes> stream_table(const Format& f, const machine::Machine& m, int64_t columns);
// Finds its runs, for a known unit; false if codes do not fill bytes in pairs of one group.
bool find_table_runs(const Format& f, const IntegerDot& d, int64_t unit, int field, StreamCodes& codes);

// The words of a run's parts in the entered blocks, as operands of dots.
class StreamWords {
 public:
  // In the code of a block; allocates its shared memory for a table.
  StreamWords(Builder& b, const machine::Machine& m, const StreamCodes& codes, Scalar type, bool aligned);
  // In a lane loop: writes the table, visible after a barrier; reads it from shared memory, before terms().
  void fill(Expr lane);
  void enter();
  struct Term {
    Expr bytes;  // four, of the dot's type
    int exponent = 0;
  };
  std::vector<Term> terms(Unpack& cursor, const StreamCodes::Run& run);

 private:
  Expr four(Expr word) const;
  Builder& b_;
  const machine::Machine& m_;
  const StreamCodes& codes_;
  Scalar type_;
  bool aligned_;
  std::map<std::array<int64_t, 4>, int> flips_;  // of words that several parts share: flipped once
  // Every lane has a copy: compilers would recompute constants and uniform values for every use.
  static int64_t table_bytes(const StreamCodes& codes);
  BufferId table_ = -1;
  std::vector<Expr> entries_;  // words
};

}  // namespace lumen::synth
