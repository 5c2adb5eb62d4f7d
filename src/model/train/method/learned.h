// Format fields as parameters: a rule with source "learned" makes the scales (and offsets) of a weight's format
// trainable, initialized with the values that quantization fits. Works for every format whose code is one formula
// (number/gradient/gradient.h). Proved by tests/model/train/trainer_test.cpp.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/pass/learned_scales.h"
#include "graph/pass/pass.h"
#include "model/arch/model.h"

namespace lumen::model::train {

struct LearnedField {
  std::string weight;  // the parameter whose format has the field
  FormatRef format;
  int field = 0;
  arch::Parameter parameter;  // name, shape; a tenth of the learning rate, no decay
};

// The fields that assign_formats turned into inputs of `g` for these assignments.
std::vector<LearnedField> learned_fields(const graph::Graph& g,
                                         const std::vector<graph::FormatAssignment>& assignments);

// One value per record and entry, as the format fits them to f32 weights.
std::vector<float> fitted_values(const LearnedField& field, const arch::Weight& weight);

// The same for a scale on a weight operand of a product. A scale fitted to zeros only is instead fitted to numbers of
// the size of a fresh initialization, 1 / sqrt(columns).
std::vector<float> fitted_values(const graph::LearnedScale& scale, std::span<const float> weight);

// The weight as products read it under the given field values (by field number).
std::vector<float> values_under(const graph::LearnedScale& scale, std::span<const float> weight,
                                const std::map<int, std::vector<float>>& fields);

// Encodes a weight with the given values of its learned fields (by field number); the codes follow from them.
arch::Weight encode_with(const FormatRef& format, const arch::Weight& weight,
                         const std::map<int, std::vector<float>>& fields);

}  // namespace lumen::model::train
