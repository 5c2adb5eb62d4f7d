#include "kernel/synth/reduce/extreme_parts.h"

#include <limits>

#include "kernel/synth/step/append.h"

namespace lumen::synth {

using graph::Op;

void ExtremeParts::declare(KernelParams& kernel, Synthesis& out) {
  if (!exists()) return;
  scratch_ = std::ssize(out.scratch);
  out.scratch.push_back(0);
  buffer_ = kernel.scratch(scratch_, 4, true);
}

void ExtremeParts::set_parts(KernelParams& kernel, int64_t parts) {
  if (!exists()) return;
  parts_ = parts;
  kernel.builder().kernel.params[buffer_].bytes = parts * 4;
}

ScalarOp ExtremeParts::op() const {
  return graph_[extreme_].attributes.reduction == graph::Reduction::max ? ScalarOp::max_ : ScalarOp::min_;
}

Expr ExtremeParts::none(Builder& b, int lanes) const {
  const double inf = std::numeric_limits<double>::infinity();
  return b.real(op() == ScalarOp::max_ ? -inf : inf, {Scalar::f32, lanes});
}

void ExtremeParts::begin(Builder& b, int lanes) {
  if (!exists()) return;
  found_.emplace(b, graph_, std::vector<graph::ValueId>{extreme_}, lanes, 1);
  found_->reset(0);
}

void ExtremeParts::write(Builder& b, Expr part) {
  if (exists()) write(b, part, found_->total(0));
}

// A separate graph that reduces the parts, its input.
void ExtremeParts::add_last_step(const machine::Machine& target, Synthesis& out) const {
  if (!exists()) return;
  out.scratch[scratch_] = parts_ * 4;
  graph::Plan plan;
  graph::Node parts{}, most{};
  parts.op = Op::input_;
  parts.type.shape = {graph::Dim(parts_)};
  most.op = Op::reduce_;
  most.type.shape = {graph::Dim(1)};
  most.operands = {0};
  most.attributes.reduction = graph_[extreme_].attributes.reduction;
  most.attributes.axes = {0};
  plan.graph.nodes = {parts, most};
  graph::Group group;
  group.shape = graph::KernelShape::reduce;
  group.nodes = group.results = {1};
  group.inputs = {0};
  group.root = 1;
  const auto place = [&](graph::ValueId value) {
    return value == 0 ? Argument{Argument::From::scratch, scratch_} : Argument{Argument::From::value, extreme_};
  };
  append(synthesize_reduce(plan, group, target), place, out);
}

}  // namespace lumen::synth
