// Fields of formats as parameters: a rule with source "learned" makes the scales (and offsets) of a weight's format
// trainable, begun at the values rounding fits. Works for every format whose code is one formula
// (number/gradient/gradient.h). Proved by tests/model/train/trainer_test.cpp.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/pass/learned_scales.h"
#include "graph/pass/pass.h"
#include "model/arch/model.h"

namespace lumen::model {

struct LearnedField {
  std::string weight;  // the parameter whose format it belongs to
  FormatRef format;
  int field = 0;
  Parameter parameter;  // name, shape; a tenth of the learning rate, no decay
};

// The fields that assign_formats made inputs of `g` for these assignments.
std::vector<LearnedField> learned_fields(const graph::Graph& g,
                                         const std::vector<graph::FormatAssignment>& assignments);

// One value per record and entry, as the format fits them to f32 weights.
std::vector<float> fitted_values(const LearnedField& field, const Weight& weight);

// The same for the scale of a weight where products read it; what is fitted to nothing but zeros is fitted to numbers
// as large as those of fresh weights, 1 / sqrt(columns).
std::vector<float> fitted_values(const graph::LearnedScale& scale, std::span<const float> weight);

// What products read of it under the given values of all such fields (by number of the field).
std::vector<float> values_under(const graph::LearnedScale& scale, std::span<const float> weight,
                                const std::map<int, std::vector<float>>& fields);

// A weight in the format, with the given values of its learned fields (by number of the field) and codes that follow
// from them.
Weight encode_with(const FormatRef& format, const Weight& weight, const std::map<int, std::vector<float>>& fields);

}  // namespace lumen::model
