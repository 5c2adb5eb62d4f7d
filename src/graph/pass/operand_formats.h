// Casts an operand of a product through a format: its axes are permuted to the order of the format's rows, encoded,
// decoded, and permuted back. Rows, and blocks within them, run along the summed axes, so that scales are constant
// within a sum. A format with tensor scales or square tiles is the same for either order, so a weight has one encoding
// for the forward and the backward pass. Proved by tests/graph/operand_formats_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"
#include "number/gradient/stochastic.h"

namespace lumen::graph {

// The value of a field (by number) of an encoded tensor whose rows (of the format, last) have this shape: field_shape.
using LearnedFields = std::function<ValueId(int field, const Shape& rows)>;

// The shape of one number for each record of the field's level, times the field's entries, of a tensor of this shape.
// `name`: of the tensor, for messages.
Shape field_shape(const Format& f, const Field& field, const Shape& shape, const std::string& name);

class OperandEncoder {
 public:
  // Random numbers in [0, 1) for stochastic rounding of an operand, by the name of the seed.
  using Drawn = std::function<ValueId(const std::string& seed, const Shape& shape)>;
  OperandEncoder(Rewriter& r, Drawn drawn) : r_(r), drawn_(std::move(drawn)) {}
  // `v`: an operand of r.from whose axes are `letters`, of which the product keeps those of `kept`; `value`: its value
  // in r.to, of any float type. Numeric extents. Rows that blocks do not divide are padded with zeros. `scale`: of the
  // whole tensor, one number; -1: it is fitted. `rotation`: ProductType::rotations. `weight`: the parameter of a
  // product that reads it, whose layer selects the random seed; empty: there is none. `learned`: supplies every field
  // except the codes.
  ValueId encoded(ValueId v, ValueId value, const std::string& letters, const std::string& kept, const FormatRef& f,
                  bool at_random, ValueId scale = -1, int64_t rotation = 0, const std::string& weight = {},
                  const LearnedFields& learned = {});
  // Numbers (f32, rows of the format last) stochastically rounded to the format before its scales are stored. Error
  // when its codes are a table.
  ValueId rounded_at_random(ValueId value, const FormatRef& f, ValueId scale = -1, const std::string& weight = {});
  // The format's scale for a tensor whose largest magnitude is this one number, in its shape; 1 for 0.
  ValueId scale_of_largest(ValueId largest, const FormatRef& f);

 private:
  Rewriter& r_;
  Drawn drawn_;
  ValueId rotated(ValueId rows, int64_t run);
  FormatRef field_format(const FormatRef& f, const ElementField& field);

  // By value, its axes in order, format, rounding.
  std::map<std::tuple<ValueId, std::string, const Format*, bool, int64_t>, ValueId> known_;
  std::map<std::string, FormatRef> fields_;  // formats of the numbers of one field, by hash
};

// A parameter stored in a format between steps, recognized by the label of its decoding: it is cast to the products'
// formats like one in f32.
bool is_held(const Graph& g, ValueId v);
// A parameter, or the f32 value of a stored one: decoded, or converted from a shorter float.
bool is_parameter(const Graph& g, ValueId v);

// The formats that learn_scales applies (learned_scales.h): only those whose scales are learned.
ProductType learned_alone(const ProductType& type, bool attention);
[[noreturn]] void refuse_learned_rounding(const Format& f, bool is_random);
// Error if v is no weight whose rows, over which scales are fitted before the first step, are those of the format.
void require_learned_rows(const Graph& g, ValueId v, const Format& f, const std::string& letters,
                          const std::string& kept, const std::string& weight);

// The largest magnitude: reduced over rows first if they are long enough for lanes in parallel, so that it fuses with
// the producer, else over all at once. One number, of the value's rank.
ValueId find_largest(Builder& build, ValueId value);

// A history [length] has the newest magnitude last, where ranks reduce it over all of them. The others are a ring
// buffer, so that a step writes two numbers in place and moves none: the last written one is marked by a negative sign.
// A history in order, oldest first, is valid, too.
ValueId largest_of_history(Builder& build, ValueId history);  // [1]
// Appends the newest, one number.
void follow_history(Builder& build, ValueId history, ValueId newest);

// Whether the encoding of a matrix's transpose is the transpose of its encoding.
bool is_same_transposed(const Format& f);

// The values the first result depends on: in a training step the loss, so that other values are gradients and updates.
// In a layer's part of a step (pass.h): values that depend on no arriving gradient.
std::vector<bool> values_of_forward_pass(const Graph& g);

}  // namespace lumen::graph
