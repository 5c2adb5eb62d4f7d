// Scales of operands as parameters: what a cast reads of one, how its gradient is sized, which formats have scales that
// can be learned, and what tells codes under them in a graph. Proved by tests/graph/learned_scales_test.cpp.
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
  std::string weight;             // whose numbers it scales; empty: an activation's
  int64_t rows = 0, columns = 0;  // of the weight as it is encoded, without the zeros behind rows that blocks need
};

// Which operands are looked at, by the name that a parameter of their only field has; null: all.
using LearnedNames = std::function<bool(const std::string& scale)>;

// What learn_scales finds, of the forward pass alone: nothing is rounded but operands under scales that are learned.
struct Learning {
  bool fits = false;  // scales of activations are fitted, and told by name
  LearnedNames only = {};
  std::vector<LearnedScale> scales = {};
  std::vector<std::pair<std::string, ValueId>> fitted = {};
  std::set<std::string> names = {};

  // A name that no other parameter has.
  std::string name_of(const std::string& operand, const Format& f, int field);
  // The parameter, and what a cast reads of it. `numbers`: under all of its scales.
  ValueId parameter(Builder& build, LearnedScale scale, int64_t numbers);
};

// Error where a format's fields are no parameters of an operand: it has none beside its codes, no single formula
// encodes it, or an activation has others than one for the whole tensor.
void require_learned(const Format& f, bool is_activation);

// A cast into a format under such parameters.
bool is_learned_cast(const Node& node);
// The format whose codes v is, below views, under such parameters; null: it is none.
FormatRef learned_format(const Graph& g, ValueId v);
// The last of the values that v comes from which `ends` the search; -1: there is none.
ValueId last_source(const Graph& g, ValueId v, const std::function<bool(ValueId)>& ends,
                    const std::function<bool(ValueId)>& is_followed);
// A map that does nothing but convert between scalars.
bool is_conversion(const Node& node);

// What a cast reads of such a parameter: the number that the field's type holds of it, whose slope is `slope`.
ValueId seen_scale(Builder& build, ValueId parameter, const FieldType& type, double slope);
// By how much the gradient of a scale of so many numbers is multiplied.
double step_slope(const Format& f, int64_t numbers);

}  // namespace lumen::graph
