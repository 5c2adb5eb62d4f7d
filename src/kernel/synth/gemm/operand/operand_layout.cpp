// Sizes of a layout's parts, in scratch and in kernels.
#include "kernel/synth/gemm/operand/operand_layout.h"

namespace lumen::synth {
namespace {

constexpr int64_t kNumber = 4;  // bytes

}  // namespace

int64_t OperandLayout::scales() const {
  if (scale_group == 0) return 0;
  return scales_by_sum ? groups() : codes() / scale_group;
}

std::string describe(const OperandLayout& l) {
  if (l.scale_group > 0) return fmt::format("quantize {}x{} i8 groups of {}", l.rows, l.columns, l.scale_group);
  return fmt::format("round {}x{} to {}", l.rows, l.columns, scalar_name(l.type));
}

OperandScratch declare_scratch(const OperandLayout& l, Synthesis& out) {
  const auto add = [&](int64_t bytes) {
    if (bytes == 0) return -1;
    out.scratch.push_back(bytes);
    return static_cast<int>(out.scratch.size()) - 1;
  };
  OperandScratch s;
  s.codes = add(l.code_bytes());
  s.scales = add(l.rows * l.scales() * kNumber);
  if (l.starts) s.starts = add(l.rows * l.groups() * kNumber);
  if (l.sums) s.sums = add(l.rows * l.groups() * kNumber);
  return s;
}

OperandParams declare_params(DotWriter& w, const OperandLayout& l, const OperandScratch& s, bool written) {
  OperandParams p;
  p.codes = w.scratch_param("codes", s.codes, l.code_bytes(), written);
  if (s.scales >= 0) p.scales = w.scratch_param("scales", s.scales, l.rows * l.scales() * kNumber, written);
  if (s.starts >= 0) p.starts = w.scratch_param("starts", s.starts, l.rows * l.groups() * kNumber, written);
  if (s.sums >= 0) p.sums = w.scratch_param("sums", s.sums, l.rows * l.groups() * kNumber, written);
  return p;
}

}  // namespace lumen::synth
