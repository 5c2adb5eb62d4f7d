// Fields of formats as parameters: a rule with source "learned" makes the scales (and offsets) of a weight's format
// trainable, begun at the values rounding fits. Works for every format whose code is one formula
// (number/gradient/gradient.h). Proved by tests/model/train/trainer_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

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

// A weight in the format, with the given values of its learned fields (by number of the field) and codes that follow
// from them.
Weight encode_with(const FormatRef& format, const Weight& weight, const std::map<int, std::vector<float>>& fields);

}  // namespace lumen::model
