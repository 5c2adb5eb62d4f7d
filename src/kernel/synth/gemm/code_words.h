// Products of whole numbers through dot instructions: numbers that lie beside each other along K, as many as the
// instruction multiplies for a lane of sums, are one word of 32 bits, and a product of words has K / word of them.
// Panels, tiles and stages then are those of f32. Sums wrap in 32 bits, so that they are the same in any order, and so
// that the products of a shift (CodesDot) can be taken from them whenever they are known.
// Proved by tests/kernel/synth/gemm/cpu/dot_codes_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

// The machine's best dot of 32-bit words for both operands, which lie along K in memory; nothing where there is none.
std::optional<CodesDot> dot_of_codes(const DotProblem& p, const machine::Machine& m);
// The same product in words of so many numbers.
DotProblem in_words(const DotProblem& p, int word);

// `words` words of a load from element `at` on, as the row takes them, shifted where it is a; zeros (shifted as well)
// beyond the first `numbers` (none: all).
Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, Expr numbers);
// The same of so many numbers, which are read in pieces without a mask.
Expr read_words(DotWriter& w, const CodesDot& row, size_t load, Expr at, int words, int64_t numbers);
// Numbers from the first to the last that rows of one outer index read of a, which is panel enough for all of them
// where it is less than the rows themselves: windows overlap. 0: it is not, or rows are words as they lie. What ends a
// run of K within a word meets zeros of b there, so that anything may lie behind it.
int64_t span_of_a(const DotProblem& p, const CodesDot& row);
// A word of a, as the row takes it, from a byte of a buffer, in every lane of a vector of sums.
Expr word_everywhere(Builder& b, const CodesDot& row, BufferId buffer, Expr byte, int align);
// sum + products of words of b and of a, by a row that needs no other behind it.
Expr add_dot(Builder& b, const CodesDot& row, Expr right, Expr left, Expr sum);
// sum + the products of words of b with the shift of a.
Expr add_shift(Builder& b, const CodesDot& row, Expr right, Expr sum);

}  // namespace lumen::synth
