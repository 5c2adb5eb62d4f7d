// Learned scales of operands as parameters: the number a cast reads of one, the factor of its gradient, the formats
// whose scales can be learned, and the detection of their codes in a graph. Proved by
// tests/graph/learned_scales_test.cpp.
//
// May include: base, graph/ir, graph/match, number/facts, number/gradient.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

struct LearnedScale {
  std::string name;  // of the parameter: "layers.0.wq.weight_scale"
  Shape shape;       // a number for each record of the field's level
  FormatRef format;
  int field = 0;
  std::string weight;             // the weight it scales; empty: an activation's
  int64_t rows = 0, columns = 0;  // of the weight as encoded, without the padding of rows to whole blocks
};

// Filters operands by the parameter name of a format with one field; null: all.
using LearnedNames = std::function<bool(const std::string& scale)>;

// Results of learn_scales, for the forward pass alone: only operands under learned scales are rounded.
struct Learning {
  bool fits = false;  // scales of activations are fitted, and returned by name
  LearnedNames only = {};
  std::vector<LearnedScale> scales = {};
  std::vector<std::pair<std::string, ValueId>> fitted = {};
  std::set<std::string> names = {};

  // A unique parameter name.
  std::string name_of(const std::string& operand, const Format& f, int field);
  // Creates the parameter, and returns the value that a cast reads of it. `numbers`: count of the numbers under all of
  // its scales.
  ValueId parameter(Builder& build, LearnedScale scale, int64_t numbers);
};

// Error if a format's fields cannot be parameters of an operand: it has none except its codes, no single formula
// encodes it, or an activation has fields other than one for the whole tensor.
void require_learned(const Format& f, bool is_activation);

// A cast into a format whose fields are such parameters.
bool is_learned_cast(const Node& node);
// The format if v, below views, is decoded from codes under such parameters; else null.
FormatRef learned_format(const Graph& g, ValueId v);
// The last of the sources of v that satisfies `ends`; -1: there is none.
ValueId last_source(const Graph& g, ValueId v, const std::function<bool(ValueId)>& ends,
                    const std::function<bool(ValueId)>& is_followed);
// A map that only converts between scalars.
bool is_conversion(const Node& node);

// The value that a cast reads of such a parameter: rounded to the field's type, with gradient `slope`.
ValueId seen_scale(Builder& build, ValueId parameter, const FieldType& type, double slope);
// The factor of the gradient of a scale over `numbers` numbers.
double step_slope(const Format& f, int64_t numbers);

}  // namespace lumen::graph
