// The shapes of kernels, one synthesizer each; synthesize.cpp chooses by Group::shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/synth/synth.h"

namespace lumen::synth {

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
Synthesis synthesize_reduce(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
Synthesis synthesize_move(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
Synthesis synthesize_attend(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                            const Options& options);
Synthesis synthesize_attend_gradient(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                     const Options& options);

// A load whose last axis is strided in memory, copied to a result of its shape by squares; nothing when another way is
// better.
std::optional<Synthesis> synthesize_turn(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                         graph::ValueId result, const machine::Machine& target);
// A load of the group, written densely as f32 into a scratch buffer.
Step copy_to_scratch(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, int scratch,
                     const machine::Machine& target);

// "64x128x32", for plans.
std::string shape_text(const std::vector<int64_t>& extents);

}  // namespace lumen::synth
