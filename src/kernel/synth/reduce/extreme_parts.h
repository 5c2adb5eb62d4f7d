// The largest or smallest of all numbers of a map that a kernel encodes: the kernel writes one for each part of them,
// and a later step reduces the parts. Extremes do not depend on the order of numbers, nor on the parts. Proved by
// tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

class ExtremeParts {
 public:
  // `extreme`: the reduction, a result of the group; -1: none is wanted, and only exists() may be called.
  ExtremeParts(const graph::Graph& g, graph::ValueId extreme) : graph_(g), extreme_(extreme) {}
  bool exists() const { return extreme_ >= 0; }

  // In this order: with the other parameters, before code, and after the kernel.
  void declare(KernelParams& kernel, Synthesis& out);
  void set_parts(KernelParams& kernel, int64_t parts);
  void add_last_step(const machine::Machine& target, Synthesis& out) const;

  ScalarOp op() const;
  Expr none(Builder& b, int lanes) const;  // the identity, which every number but NaN replaces
  // A part that a loop covers, in vectors of so many lanes: begin, add, write.
  void begin(Builder& b, int lanes);
  void add(Expr x, Expr count) { found_->add(0, 0, x, count); }
  void write(Builder& b, Expr part);
  void write(Builder& b, Expr part, Expr extreme) const { b.store(buffer_, extreme, part * 4, 4); }

 private:
  const graph::Graph& graph_;
  graph::ValueId extreme_;
  int64_t parts_ = 1;
  int scratch_ = -1;
  BufferId buffer_ = -1;
  std::optional<Accumulators> found_;
};

}  // namespace lumen::synth
