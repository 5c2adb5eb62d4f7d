// The synthesizer's entry point: dispatches on a group's shape.
#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/synth/attention/gpu/attend_block.h"
#include "kernel/synth/codes_apart.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/move/move.h"
#include "kernel/synth/product_codes.h"
#include "kernel/synth/reduce/reduce.h"
#include "kernel/synth/synth.h"

namespace lumen::synth {

namespace {

Synthesis synthesize_attend(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                            const Options& options) {
  if (options.invariant && target.kind == machine::Kind::cpu)
    return attend_by_tasks(plan, group, target, Scalar::f32, true);
  const Scalar factors = options.exact ? options.products : attention_factors(plan, group, target, options.products);
  if (auto by_blocks = attend_by_blocks(plan, group, target, factors)) return std::move(*by_blocks);
  return attend_by_tasks(plan, group, target, options.exact ? Scalar::f32 : options.products);
}

Synthesis synthesize_attend_gradient(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                     const Options& options) {
  if (auto by_blocks = attend_gradient_by_blocks(plan, group, target, options.products)) return std::move(*by_blocks);
  return attend_gradient_by_tasks(plan, group, target, options.exact ? Scalar::f32 : options.products);
}

Synthesis synthesize_fitted(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  if (auto in_squares = encode_squares(plan, group, target)) return *std::move(in_squares);
  return synthesize_apart(plan, group, target);
}

}  // namespace

Synthesis synthesize(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                     const Options& options) {
  switch (group.shape) {
    case graph::KernelShape::map:
      if (auto decoded = synthesize_decode(plan, group, target)) return *std::move(decoded);
      return synthesize_map(plan, group, target);
    case graph::KernelShape::reduce:
      return synthesize_reduce(plan, group, target);
    case graph::KernelShape::dot:
      if (encodes_product(plan, group)) return synthesize_product_codes(plan, group, target, options);
      return synthesize_dot(plan, group, target, options);
    case graph::KernelShape::attend:
      return synthesize_attend(plan, group, target, options);
    case graph::KernelShape::attend_gradient:
      return synthesize_attend_gradient(plan, group, target, options);
    case graph::KernelShape::move:
      return finds_fields(plan, group) ? synthesize_fitted(plan, group, target) : synthesize_move(plan, group, target);
  }
  LUMEN_UNREACHABLE("group shape {}", ordinal(group.shape));
}

}  // namespace lumen::synth
