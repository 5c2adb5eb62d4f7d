// How rows of an operand lie in scratch for the kernel that multiplies them: the order and the type of their elements,
// scales and sums of groups beside them, and what is padded or interleaved. A plan makes one, a step before writes what
// it says (operand_step.h), the kernel reads by it. It names no weight, so that products of the same rows whose weights
// want one layout have one step. Proved by tests/kernel/synth/gemm/operand_step_test.cpp.
#pragma once

#include <string>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/order/lane_order.h"

namespace lumen::synth {

struct OperandLayout {
  // Codes of integers are x = a' p with p in -127..127, a' = max|x| / 127 over a scale group; floats are rounded.
  Scalar type = Scalar::i8;
  int64_t rows = 1, columns = 1;  // rows there; elements of one in memory
  int64_t outer_rows = 0;         // rows there of an outer index: m's and padding that nobody uses; 0: m's alone
  int64_t tile_rows =
      0;  // so many rows lie vector by vector beside each other (as one instruction takes them); 0: apart
  int64_t vector_bytes = 0;
  int64_t gap_bytes = 0;  // behind each row, so that rows do not fall into one set of a cache

  // Units of a row are written in vectors of `lanes` elements, in the order in which the weight's come out of memory. A
  // unit without vectors lies as it is; elements behind the last of a row are zero. Lanes without an element are zero.
  RowOrder order;
  int lanes = 64;

  // Elements that share a scale (0: floats), and those that are summed. Numbers of a group lie row by row.
  int64_t scale_group = 0, sum_group = 1;
  bool scales_by_sum = false;  // a group of sums has its scale beside it, and sums are times the scale
  bool sums = false;           // f32: of codes
  bool starts = false;         // i32: the same times `bias`
  int64_t bias = 0;

  bool has_sums() const { return sums || starts; }
  bool is_natural() const { return order.unit.vectors.empty() && order.rest.elements == 0; }
  int64_t unit_codes() const { return is_natural() ? order.unit.elements : std::ssize(order.unit.vectors) * lanes; }
  int64_t codes() const { return order.units * unit_codes() + order.rest.vectors.size() * lanes; }
  int64_t row_bytes() const { return codes() * scalar_bytes(type) + gap_bytes; }
  int64_t code_bytes() const { return rows * row_bytes(); }
  // Numbers of a row.
  int64_t unit_groups() const { return order.unit.elements / sum_group; }
  int64_t groups() const { return order.units * unit_groups() + order.rest_groups(sum_group); }
  int64_t scales() const;
};

// For plans: "quantize 4x2048 i8 groups of 32", "round 4x2048 to bf16".
std::string describe(const OperandLayout& layout);

// Scratch numbers; -1 where the layout has none. Then the params of a kernel that reads or writes them.
struct OperandScratch {
  int codes = -1, scales = -1, starts = -1, sums = -1;
};
OperandScratch declare_scratch(const OperandLayout& layout, Synthesis& out);
struct OperandParams {
  BufferId codes = -1, scales = -1, starts = -1, sums = -1;
};
OperandParams declare_params(DotWriter& w, const OperandLayout& layout, const OperandScratch& s, bool written);

}  // namespace lumen::synth
