// What parameters are held in between steps: f32, a 16-bit float, or any format with an encoder. A step computes the
// new value in f32 and rounds it to that: up or down at random, with the probability that its distance to the lower
// neighbour gives, so that moves smaller than a step of the format are not lost on average; or to the nearest. What is
// drawn is a function of (run, step, parameter, element). What rounding to the nearest loses can be held as well, as a
// state of the optimizer: the next step adds it to the value it begins with (Kahan's compensation). Forward and
// backward pass read the held value alone. Proved by tests/model/recipe/optimizer/held_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/ir/graph.h"
#include "model/arch/family/family.h"
#include "number/library/library.h"

namespace lumen::model {

inline constexpr const char* kRoundingSeed = "step.rounding";  // u32, rank 0

// As a recipe says it.
struct HeldSettings {
  std::string type = "f32";             // a format's name
  std::string rounding = "stochastic";  // or "nearest"; with a compensation to the nearest
  // What rounding loses is held in this format; "exact": the lower half of an f32 whose upper half is bf16; "none".
  std::string compensation = "none";
};

// Fields of formats that are trained, and magnitudes of groups: numbers about weights, which are f32.
inline constexpr const char* kRoleField = "scale";
inline constexpr const char* kRoleGroupMagnitude = "group_magnitude";
// Scales of operands of products that are learned (graph/pass/learned_scales.h).
inline constexpr const char* kRoleOperandScale = "operand_scale";
inline bool is_about_weights(const Parameter& p) {
  return p.role == kRoleField || p.role == kRoleGroupMagnitude || p.role == kRoleOperandScale;
}

// What held settings mean. Error (usage, user) where that is no way to hold parameters.
struct HeldIn {
  graph::Element element;  // f32: as they are
  bool is_random = true;
  bool is_exact = false;               // compensation: the lower half
  std::optional<graph::Element> rest;  // what rounding loses; none: it is lost
  bool is_plain() const { return element == graph::Element{}; }
  // Whether a parameter is held so: matrices whose rows blocks divide. Others stay f32, as vectors (norms) do in files.
  bool holds(const Parameter& p) const;
  // What its rest is held in; f32 where blocks do not divide rows.
  graph::Element rest_of(const Parameter& p) const;
};
HeldIn held_in(const HeldSettings& settings, const FormatLibrary& formats);

// Which parameters are held in which type; the others are f32.
struct Holding {
  graph::Element type;
  std::vector<std::string> names;
  bool has(const std::string& name) const;
  // What a parameter of this shape is held in.
  graph::Type type_of(const Parameter& p) const { return {p.shape, has(p.name) ? type : graph::Element{}}; }
};
// All such of those that are trained. Error (user) where none can be held so.
Holding holding_of(const std::vector<Parameter>& parameters, const HeldIn& in);

// Inputs of these names get the type; everything that reads them reads a cast to f32.
graph::Graph hold(graph::Graph g, const Holding& held);
// That cast of an input of a graph that hold() made; the input itself where it is none of these names.
graph::ValueId held_value(const graph::Graph& g, graph::ValueId input, const Holding& held);

// An f32 value as bf16, rounded up or down by the numbers that (seed, salt) name.
graph::ValueId round_stochastically(graph::Builder& build, graph::ValueId value, graph::ValueId seed, uint32_t salt);
// The same as any element. Error where a format's codes are a table.
graph::ValueId hold_at_random(graph::Builder& build, graph::ValueId value, const graph::Element& as,
                              graph::ValueId seed, uint32_t salt);

// An f32 value as two: bf16, rounded to the nearest (halves away from zero), and by how many units of the last place
// of an f32 that is off, a whole number of 16 bits. And the value again, of both as f32.
struct Halves {
  graph::ValueId upper = -1, lower = -1;
};
Halves split_halves(graph::Builder& build, graph::ValueId value);
std::pair<float, float> halves_of(float value);
graph::ValueId join_halves(graph::Builder& build, graph::ValueId upper, graph::ValueId lower);

// An f32 value whose mantissa has `bits` bits at most, rounded up or down by the numbers that (seed, salt) name; what
// is not finite stays so.
graph::ValueId round_mantissa(graph::Builder& build, graph::ValueId value, int bits, graph::ValueId seed,
                              uint32_t salt);

// The seed of a step.
uint32_t rounding_seed(uint32_t run, int64_t step);

}  // namespace lumen::model
