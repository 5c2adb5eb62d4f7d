// Operands of attentions in the layout that blocks copy: contiguous lines of a 16-bit float, in whole units of 16
// bytes. Operands with another layout are laid out once by a preceding step. Proved by
// tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

struct LaidOperand {
  Access from;           // over the scores' axes and the line, as it is in memory
  Access at;             // the same where blocks read it
  int64_t width = 1;     // numbers of a line
  int64_t padded = 1;    // the same with padding, where blocks read it
  int64_t elements = 0;  // of scratch
  Scalar scalar = Scalar::bf16;
  int scratch = -1;       // number; -1: memory already has the layout
  std::vector<int> axes;  // of the scores along which it varies, outermost first; the last ones are the lines'
};

// `lines`: the axes of the scores that count lines, outermost first. Lines are padded to multiples of `unit`. nullopt
// if the operand is not in memory, or lines are not contiguous.
std::optional<LaidOperand> lay_operand(const graph::Plan& plan, const graph::Group& group, const Access& from,
                                       const std::vector<int64_t>& extents, const std::vector<int>& lines,
                                       int64_t width, Scalar to, int64_t unit);

// All operands of a gradient, by their numbers; empty if one cannot be laid out, or `unit` is 0.
std::vector<LaidOperand> lay_operands(const graph::Plan& plan, const graph::Group& group, const AttentionGradient& a,
                                      Scalar to, int64_t unit);

// The step that lays an operand out; `what` names it.
Step write_laid(const graph::Plan& plan, const LaidOperand& o, const std::vector<int64_t>& extents,
                const std::string& what);

// The step that writes reciprocals of numbers to scratch, contiguously; sets `at` to their access.
Step write_reciprocals(const graph::Plan& plan, Access from, const std::vector<int64_t>& extents, int scratch,
                       Access* at);

}  // namespace lumen::synth
