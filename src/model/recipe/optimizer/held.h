// The type of parameters between steps: f32, a 16-bit float, or any format with an encoder. A step computes the new
// value in f32 and rounds it: stochastically, with the probability given by the distance to the lower neighbour, so
// that updates smaller than a step of the format are kept in expectation; or to nearest. The random numbers are a
// function of (run, step, parameter, element). The residual of rounding to nearest can be kept as an optimizer state:
// the next step adds it to the initial value (Kahan summation). Forward and backward pass read only the rounded value.
// Proved by tests/model/recipe/optimizer/held_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/ir/graph.h"
#include "model/arch/family/family.h"
#include "number/library/library.h"

namespace lumen::model::recipe {

inline constexpr const char* kRoundingSeed = "step.rounding";  // u32, rank 0

// The settings of a recipe.
struct HeldSettings {
  std::string type = "f32";             // a format's name
  std::string rounding = "stochastic";  // or "nearest"; a compensation implies nearest
  // Format of the rounding residual; "exact": the lower half of an f32 whose upper half is bf16; "none".
  std::string compensation = "none";
};

// Trained fields of formats, and magnitudes of groups: f32 parameters about weights.
inline constexpr const char* kRoleField = "scale";
inline constexpr const char* kRoleGroupMagnitude = "group_magnitude";
// Learned scales of operands of products (graph/pass/learned_scales.h).
inline constexpr const char* kRoleOperandScale = "operand_scale";
inline bool is_about_weights(const arch::Parameter& p) {
  return p.role == kRoleField || p.role == kRoleGroupMagnitude || p.role == kRoleOperandScale;
}

// Resolved HeldSettings. Error (usage, user) where they are not possible.
struct HeldIn {
  graph::Element element;  // f32: unchanged
  bool is_random = true;
  bool is_exact = false;               // compensation "exact"
  std::optional<graph::Element> rest;  // type of the residual; nullopt: it is dropped
  bool is_plain() const { return element == graph::Element{}; }
  // Whether the type applies to a parameter: matrices whose rows the block size divides. Others stay f32, as vectors
  // (norms) do in files.
  bool holds(const arch::Parameter& p) const;
  // The type of its residual; f32 where the block size does not divide rows.
  graph::Element rest_of(const arch::Parameter& p) const;
};
HeldIn held_in(const HeldSettings& settings, const FormatLibrary& formats);

// The parameters with a type other than f32; all others are f32.
struct Holding {
  graph::Element type;
  std::vector<std::string> names;
  bool has(const std::string& name) const;
  // The type of a parameter between steps.
  graph::Type type_of(const arch::Parameter& p) const { return {p.shape, has(p.name) ? type : graph::Element{}}; }
};
// All trained parameters that `in` applies to. Error (user) where there are none.
Holding holding_of(const std::vector<arch::Parameter>& parameters, const HeldIn& in);

// Inputs of these names get the type; their readers read a cast to f32.
graph::Graph hold(graph::Graph g, const Holding& held);
// That cast of an input in a graph that hold() made; the input itself where its name is not held.
graph::ValueId held_value(const graph::Graph& g, graph::ValueId input, const Holding& held);

// An f32 value as bf16, rounded stochastically with the random numbers of (seed, salt).
graph::ValueId round_stochastically(graph::Builder& build, graph::ValueId value, graph::ValueId seed, uint32_t salt);
// The same for any element type. Error for a format with a code table.
graph::ValueId hold_at_random(graph::Builder& build, graph::ValueId value, const graph::Element& as,
                              graph::ValueId seed, uint32_t salt);

// Splits an f32 value into bf16, rounded to nearest (halves away from zero), and the residual in units of the last
// place of an f32, a 16-bit integer; and joins both into the f32 value.
struct Halves {
  graph::ValueId upper = -1, lower = -1;
};
Halves split_halves(graph::Builder& build, graph::ValueId value);
std::pair<float, float> halves_of(float value);
graph::ValueId join_halves(graph::Builder& build, graph::ValueId upper, graph::ValueId lower);

// An f32 value rounded stochastically to at most `bits` mantissa bits with the random numbers of (seed, salt);
// infinities and NaN are unchanged.
graph::ValueId round_mantissa(graph::Builder& build, graph::ValueId value, int bits, graph::ValueId seed,
                              uint32_t salt);

// The rounding seed of a step.
uint32_t rounding_seed(uint32_t run, int64_t step);

}  // namespace lumen::model::recipe
