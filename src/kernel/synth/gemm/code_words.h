// Integer products through dot instructions: adjacent numbers along K, as many as the instruction multiplies per lane
// of sums, form one word of 32 bits, and a product of words has K / word of them. Panels, tiles and stages are then
// those of f32. Sums wrap in 32 bits, so they are the same in any order, and the products of a shift (CodesDot) can be
// subtracted at any time. Proved by tests/kernel/synth/gemm/cpu/dot_codes_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

// The machine's best dot of 32-bit words for both operands, which must lie along K in memory; nullopt if it has none.
std::optional<CodesDot> dot_of_codes(const DotProblem& p, const machine::Machine& m);
// The same product in words of `word` numbers.
DotProblem in_words(const DotProblem& p, int word);

// Reads `words` words of a load from element `at` on, in the row's type, shifted if the load is a; zeros (shifted as
// well) from number `numbers` on (absent: none).
Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, Expr numbers);
// The same for a constant count of numbers, which are read in parts without a mask.
Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, int64_t numbers);
// Count of numbers from the first to the last that rows of one outer index read of a. Windows overlap, so a panel of
// this range can be smaller than the rows. 0: it is not smaller, or rows are words in memory. Within a word, numbers
// past the end of a run of K are multiplied by zeros of b, so any data may follow it.
int64_t span_of_a(const DotProblem& p, const CodesDot& row);
// A word of a in the row's type, from a byte of a buffer, broadcast to every lane of a vector of sums.
Expr word_everywhere(Builder& b, const CodesDot& row, BufferId buffer, Expr byte, int align);
// sum + products of words of b and of a, by a row that needs no second instruction (DotRow::pairs).
Expr add_dot(Builder& b, const CodesDot& row, Expr right, Expr left, Expr sum);
// sum + the products of words of b with the shift of a.
Expr add_shift(Builder& b, const CodesDot& row, Expr right, Expr sum);

}  // namespace lumen::synth
