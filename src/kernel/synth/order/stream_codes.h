// Codes of a unit of a streamed weight as an integer dot of bytes takes them, by as few operations as the layout
// allows: bytes as they lie in memory, masked, where bits stand in them; the exponents that those bits count are
// applied to the sums, a power of two at a time. Codes of four bits with a table become bytes by the machine's
// selection out of registers, digit by digit. Found from the layout and the numbers codes stand for. Proved by
// tests/kernel/synth/gemm/stream_codes_test.cpp.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "kernel/synth/order/factor.h"

namespace lumen::synth {

struct StreamCodes {
  // Bits of four elements, each at the same place of its byte.
  struct Part {
    std::array<int64_t, 4> bytes{};  // of the unit
    int mask = 255, flip = 0;        // bits that are kept; of those, reversed
    int down = 0;                    // by so many bits the word is shifted then, for dots of signed bytes
    int exponent = 0;                // the byte's lowest bit then counts 2^exponent
  };
  // Four elements that meet one dot.
  struct Run {
    std::array<int64_t, 4> elements{};
    std::vector<Part> parts;  // of a table: one, whose first two bytes have the codes
  };
  std::vector<Run> runs;
  // Digits of the table's numbers, below 128, that count 2^7 of the next; none: codes count.
  std::vector<std::array<uint8_t, 16>> digits;
  // Numbers of codes of four bits, as bytes; the machine selects bytes by bytes. Empty: codes count.
  std::vector<int64_t> table;
  int least = 0;              // exponent of the sums
  double step = 1, bias = 0;  // an element's number is step * (its code or digits + bias)
  bool rounds = false;        // the table's numbers were no such sums

  // The order of `group` elements; every aligned run of so many among which it repeats is `share`.
  LaneOrder order(int64_t unit) const;
};

// Codes that count numbers, or stand in d's table, in groups of d.fine elements; nothing where their bits do not lie
// so.
std::optional<StreamCodes> stream_codes(const Format& f, const IntegerDot& d, int64_t unit, const machine::Machine& m);

// A table of sixteen numbers; `exact`: nothing where they would be rounded.
struct TableCodes {
  IntegerDot dot;  // the form, its groups and the row
  StreamCodes codes;
};
std::optional<TableCodes> stream_table(const Format& f, const machine::Machine& m, int64_t columns);
// Its runs, when the unit is known; false where codes do not fill bytes in pairs of one group.
bool find_table_runs(const Format& f, const IntegerDot& d, int64_t unit, int field, StreamCodes& codes);

// The words of a run's parts in the entered blocks, and what a dot adds of them.
class StreamWords {
 public:
  // In the code of a block, whose shared memory it takes for a table.
  StreamWords(Builder& b, const machine::Machine& m, const StreamCodes& codes, Scalar type, bool aligned);
  // In a lane loop: the table, visible behind a barrier; before terms, the same out of shared memory.
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
  std::map<std::array<int64_t, 4>, int> flips_;  // of words that several parts share: reversed once
  // Every lane has a copy: constants, and what all lanes have, would be made anew for every use.
  static int64_t table_bytes(const StreamCodes& codes);
  BufferId table_ = -1;
  std::vector<Expr> entries_;  // words
};

}  // namespace lumen::synth
