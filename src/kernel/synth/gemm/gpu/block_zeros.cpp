// See block_zeros.h.
#include "kernel/synth/gemm/gpu/block_zeros.h"

#include <algorithm>

namespace lumen::synth {

using graph::PaddedAxis;

bool BlockZeros::can_count(const graph::DotZeros& zeros) {
  constexpr int64_t kMost = int64_t{1} << 31;
  int64_t padded = 1;
  for (const PaddedAxis& a : zeros.axes) padded = std::max(padded, a.extent * a.stride);
  return padded < kMost && zeros.elements < kMost;
}

bool BlockZeros::keeps_runs(const graph::DotZeros& zeros, int64_t elements) {
  if (zeros.offset % elements != 0) return false;
  return std::ranges::all_of(zeros.axes, [&](const PaddedAxis& a) {
    if (a.stride == 1) return !a.has_zeros() && a.image_stride == 1 && a.extent % elements == 0;
    return a.stride % elements == 0 && a.image_stride % elements == 0;
  });
}

int BlockZeros::numbers() const {
  return 1 + std::ranges::count_if(zeros_.axes, [](const PaddedAxis& a) { return a.has_zeros(); });
}

BlockZeros::Place BlockZeros::place(Expr element, int64_t most) {
  Place out;
  Expr rest = cast(element, Scalar::u32);
  for (const PaddedAxis& a : zeros_.axes) {
    const bool is_there = a.stride <= most;
    Expr digit = u32(0);
    if (is_there) {
      digit = a.stride == 1 ? rest : rest / u32(a.stride);
      if (a.stride > 1) rest = rest % u32(a.stride);
      const Expr there = digit * u32(a.image_stride);
      out.element = out.element.exists() ? out.element + there : there;
    }
    if (a.has_zeros()) out.along.push_back(digit);
  }
  if (!out.element.exists()) out.element = u32(0);
  return out;
}

BlockZeros::Place BlockZeros::first_place(Expr element, int64_t most) {
  Place out = place(element, most);
  int64_t from = zeros_.offset;
  size_t at = 0;
  for (const PaddedAxis& a : zeros_.axes) {
    if (!a.has_zeros()) continue;
    from -= a.start * a.image_stride;
    out.along[at] = out.along[at] + u32(-a.start);
    ++at;
  }
  out.element = out.element + u32(from);
  return out;
}

Expr BlockZeros::inside(const Place& first, const Place& second) {
  Expr all;
  size_t at = 0;
  for (const PaddedAxis& a : zeros_.axes) {
    if (!a.has_zeros()) continue;
    const Expr here = first.along[at] + second.along[at] < u32(a.image_extent);
    all = all.exists() ? all & here : here;
    ++at;
  }
  return all;
}

}  // namespace lumen::synth
