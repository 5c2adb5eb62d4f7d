// Rounding with error feedback as one kernel: columns of a matrix are rounded in order, and the error of each is passed
// to later ones by a strictly upper triangular matrix U (GPTQ, which is LDLQ: x_k = w_k + sum over j < k of d_j U_jk,
// d_j = w_j - decoded_j). The kernel does one panel of columns; x already contains the errors of columns before the
// panel, by a product of matrices that the caller computes. A block is fitted to the values its columns would have
// without further errors, which is what elimination by H^-1 leaves in them: w + s with s (U_block + I) = the errors
// from previous blocks. Lanes are rows, so any number format with any routines works the same way. Proved by
// tests/kernel/synth/synth_feedback_test.cpp.
#pragma once

#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

enum class FeedbackOrder : uint8_t {
  columns,  // blocks from left to right, each fitted to its values after feedback
  given,    // any order of columns: fields stay as they are in the blob, codes alone are written
};

struct FeedbackShape {
  int64_t rows = 0, columns = 0;  // of the tensor in the format
  int64_t panel = 0;              // columns of a panel; whole blocks
  FeedbackOrder order = FeedbackOrder::columns;
  bool weighs = false;  // fits of blocks weigh columns, if the format has such a fit
};

// The fewest columns a panel of the format may have that are at least `least`, or all.
int64_t feedback_panel(const Format& f, int64_t columns, int64_t least = 128);

// Whether codes can be chosen one by one after the fit: then every element gets the errors of those before it in its
// block. Otherwise a block is rounded at once, and later blocks get its errors.
bool rounds_elements(const Format& f, bool weighs);
// Whether codes can be chosen with the fields that are in a blob (FeedbackOrder::given).
bool rounds_with_stored_fields(const Format& f);

// Values by number, matrices transposed so that rows of the tensor are contiguous:
// 0  place i64[2]: the panel's first column, or its first position in the order; how many columns it has (whole blocks)
// 1  x f32[panel, rows]: the panel's values with the errors of columns before it
// 2  w f32[panel, rows]: the panel's values as they were
// 3  u f32[panel, panel]: what errors of the panel's columns (row of u) add to others (column of u); read above the
//    diagonal
// 4  the blob: fields of rows, tiles and the tensor are read; records of the panel's blocks are written
// 5  d f32[panel, rows]: written, w less what was stored
// 6  with weighs, and a format that weighs: f32[columns], how much errors count
// 7  with weighs, and a format whose blocks' weighted fit reads locals of the rows': w f32[columns, rows] whole
// 8  with a given order: i32[panel], columns of the tensor by position
// Fields above the block are fitted before, by encode_level or an ordinary encode.
Synthesis synthesize_feedback(const Format& f, const FeedbackShape& shape, const machine::Machine& target);

}  // namespace lumen::synth
