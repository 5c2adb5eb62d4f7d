// The synthesizer's door: a group's shape chooses who writes its kernels.
#include "base/check.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/shapes.h"

namespace lumen::synth {

std::string shape_text(const std::vector<int64_t>& extents) {
  std::string out;
  for (const int64_t e : extents) out += fmt::format("{}{}", out.empty() ? "" : "x", e);
  return out.empty() ? "1" : out;
}

Synthesis synthesize(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                     const Options& options) {
  switch (group.shape) {
    case graph::KernelShape::map:
      return synthesize_map(plan, group, target);
    case graph::KernelShape::reduce:
      return synthesize_reduce(plan, group, target);
    case graph::KernelShape::dot:
      return synthesize_dot(plan, group, target, options);
    case graph::KernelShape::attend:
      return synthesize_attend(plan, group, target, options);
    case graph::KernelShape::attend_gradient:
      return synthesize_attend_gradient(plan, group, target, options);
    case graph::KernelShape::move:
      return synthesize_move(plan, group, target);
  }
  LUMEN_UNREACHABLE("group shape {}", static_cast<int>(group.shape));
}

}  // namespace lumen::synth
