// Layout of an operand's rows in scratch for the kernel that multiplies them: order and type of their elements, scales
// and sums of groups, padding and interleaving. A plan makes one, an earlier step writes the rows by it
// (operand_step.h), the kernel reads by it. It names no weight, so that products of the same rows whose weights need
// one layout share one step. Proved by tests/kernel/synth/gemm/operand_step_test.cpp.
#pragma once

#include <string>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/order/lane_order.h"

namespace lumen::synth {

struct OperandLayout {
  // Codes of integers are x = a' p with p in -127..127, a' = max|x| / 127 over a scale group; floats are rounded.
  Scalar type = Scalar::i8;
  int64_t rows = 1, columns = 1;  // rows in scratch; elements of a row in memory
  int64_t outer_rows = 0;         // rows in scratch of an outer index: m's and unused padding; 0: m's alone
  int64_t tile_rows = 0;          // so many rows are interleaved, vector by vector (for one instruction); 0: none
  int64_t vector_bytes = 0;
  int64_t gap_bytes = 0;  // padding after each row, to avoid cache set conflicts

  // Units of a row are written in vectors of `lanes` elements, in the order in which the weight is unpacked. A unit
  // without vectors keeps its order. Elements past the end of a row are zero, and so are lanes without an element.
  RowOrder order;
  int lanes = 64;

  // Elements that share a scale (0: floats), and elements of a sum. Numbers of groups are stored row by row.
  int64_t scale_group = 0, sum_group = 1;
  bool scales_by_sum = false;  // each group's sum is stored with its scale, and multiplied by it
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

// Scratch numbers (-1: the layout has none), and the params of a kernel that reads or writes them.
struct OperandScratch {
  int codes = -1, scales = -1, starts = -1, sums = -1;
};
OperandScratch declare_scratch(const OperandLayout& layout, Synthesis& out);
struct OperandParams {
  BufferId codes = -1, scales = -1, starts = -1, sums = -1;
};
OperandParams declare_params(DotWriter& w, const OperandLayout& layout, const OperandScratch& s, bool written);

}  // namespace lumen::synth
