// Elementwise kernels.
//
// May include: base, kernel/synth/body, kernel/synth/order, kernel/synth/step.
#pragma once

#include <optional>

#include "kernel/synth/step/step_builder.h"

namespace lumen::synth {

// Elements of a load, dense in the order of its shape.
struct TransposedCopy {
  Access from;
  std::vector<int64_t> shape;
  Scalar source = Scalar::f32, result = Scalar::f32;
};
// One kernel that copies a load whose last axis is strided in memory by squares that are transposed in registers;
// false, with nothing written, if the load is not of that kind or vectors have one lane.
bool write_transposed(Builder& b, BufferId in, BufferId out, const TransposedCopy& copy,
                      const machine::Machine& target);
// Each thread of a GPU transposes a square, by loads of 16 bytes; adjacent threads read and write whole lines together.
// False if squares do not divide the matrix, are not aligned, or types differ.
bool write_transposed_by_threads(Builder& b, BufferId in, BufferId out, const TransposedCopy& copy);

// The same as a group, of a load that is copied to a result of its shape; nullopt if another way is better.
std::optional<Synthesis> synthesize_transpose(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                              graph::ValueId result, const machine::Machine& target);

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
