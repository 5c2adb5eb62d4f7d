// Parameters held in a 16-bit float between steps: half the memory of f32. A step computes the new value in f32 and
// rounds it stochastically: up with the probability that its distance to the lower neighbour gives, so that moves
// smaller than a step of the 16-bit float are not lost on average. What is drawn is a function of (run, step,
// parameter, element). Proved by tests/model/train/optimizer/held_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/ir/graph.h"
#include "model/arch/family/family.h"
#include "number/library/library.h"

namespace lumen::model {

inline constexpr const char* kRoundingSeed = "step.rounding";  // u32, rank 0

// What a recipe's param_type names. Error when it is neither f32 nor bf16.
Scalar param_scalar(const std::string& name);

// Which parameters are held in which type; the others are f32.
struct Holding {
  Scalar type = Scalar::f32;
  std::vector<std::string> names;
};
// All matrices that are trained. Vectors (norms) stay f32, as in files.
Holding holding_of(const std::vector<Parameter>& parameters, Scalar type);

// Inputs of these names get the type; everything that reads them reads a cast to f32.
graph::Graph hold(graph::Graph g, const Holding& held);
// That cast of an input of a graph that hold() made; the input itself where it is none of these names.
graph::ValueId held_value(const graph::Graph& g, graph::ValueId input, const Holding& held);

// An f32 value as bf16, rounded up or down by the numbers that (seed, salt) name.
graph::ValueId round_stochastically(graph::Builder& build, graph::ValueId value, graph::ValueId seed, uint32_t salt);

// An f32 value whose mantissa has `bits` bits at most, rounded up or down by the numbers that (seed, salt) name; what
// is not finite stays so.
graph::ValueId round_mantissa(graph::Builder& build, graph::ValueId value, int bits, graph::ValueId seed,
                              uint32_t salt);

// The seed of a step.
uint32_t rounding_seed(uint32_t run, int64_t step);

}  // namespace lumen::model
