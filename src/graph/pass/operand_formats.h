// What an operand of a product becomes where it passes through a format: its axes in the order of the format's rows,
// encoded, decoded, and in their old order again. Rows, and blocks within them, lie along what the product sums, so
// that scales are constant where sums are; a format whose scales are those of the whole tensor or of square tiles is
// the same for either order, and a weight then has one encoding for the forward and the backward pass. Proved by
// tests/graph/operand_formats_test.cpp.
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

// The value of a field (by number) of what is encoded, whose rows (of the format, last) have this shape: field_shape.
using LearnedFields = std::function<ValueId(int field, const Shape& rows)>;

// One number for each record of the field's level, times the field's entries, of a tensor of this shape. `name`: of the
// tensor, for people.
Shape field_shape(const Format& f, const Field& field, const Shape& shape, const std::string& name);

class OperandEncoder {
 public:
  // Numbers in [0, 1) for an operand that is rounded at random, by the name of the seed.
  using Drawn = std::function<ValueId(const std::string& seed, const Shape& shape)>;
  OperandEncoder(Rewriter& r, Drawn drawn) : r_(r), drawn_(std::move(drawn)) {}
  // `v`: an operand of r.from whose axes are `letters`, of which the product keeps those of `kept`; `value`: what it is
  // in r.to, of any float type. Numeric extents. Rows that blocks do not divide are encoded with zeros behind them.
  // `scale`: of the whole tensor, one number; -1: it is fitted. `rotation`: ProductType::rotations. `weight`: the
  // parameter of a product that reads it, whose layer has the seed of what is drawn; empty: there is none. `learned`:
  // every field beside the codes is handed in.
  ValueId encoded(ValueId v, ValueId value, const std::string& letters, const std::string& kept, const FormatRef& f,
                  bool at_random, ValueId scale = -1, int64_t rotation = 0, const std::string& weight = {},
                  const LearnedFields& learned = {});
  // Numbers (f32, rows of the format last) rounded at random to what the format holds beside its scales. Error when its
  // codes are a table.
  ValueId rounded_at_random(ValueId value, const FormatRef& f, ValueId scale = -1, const std::string& weight = {});
  // The scale that the format has for a tensor whose largest magnitude is this one number, in its shape; 1 for 0.
  ValueId scale_of_largest(ValueId largest, const FormatRef& f);

 private:
  Rewriter& r_;
  Drawn drawn_;
  ValueId rotated(ValueId rows, int64_t run);
  FormatRef field_format(const FormatRef& f, const ElementField& field);

  // By value, its axes in order, format, rounding.
  std::map<std::tuple<ValueId, std::string, const Format*, bool, int64_t>, ValueId> known_;
  std::map<std::string, FormatRef> fields_;  // formats whose numbers are a field, by hash
};

// A parameter that a format holds between steps, by the name that its decoding has: it passes through the products'
// formats as one in f32 does.
bool is_held(const Graph& g, ValueId v);
// A parameter, or what is held of one as f32: decoded, or a longer float.
bool is_parameter(const Graph& g, ValueId v);

// What learn_scales asks of a pass (learned_scales.h): no formats but those whose scales are learned.
ProductType learned_alone(const ProductType& type, bool attention);
[[noreturn]] void refuse_learned_rounding(const Format& f, bool is_random);
// Error where v is no weight whose rows, for which scales are fitted before the first step, are those of the format.
void require_learned_rows(const Graph& g, ValueId v, const Format& f, const std::string& letters,
                          const std::string& kept, const std::string& weight);

// The largest magnitude: first of rows that are long enough for lanes side by side, so that what computes them finds
// it, else of all at once. One number, of the value's rank.
ValueId find_largest(Builder& build, ValueId value);

// A history [length] has the newest magnitude last, where ranks make it that of all of them. Those before it are a
// ring, so that a step writes two numbers where it reads them and moves none: the one written last is negative. What
// lies in order, oldest first, is a history, too.
ValueId largest_of_history(Builder& build, ValueId history);  // [1]
// Writes the newest, one number.
void follow_history(Builder& build, ValueId history, ValueId newest);

// Whether the encoding of a matrix's transpose is the transpose of its encoding.
bool is_same_transposed(const Format& f);

// What the first result is computed from: in a training step the loss, so that other values are gradients and updates.
// In a layer's part of a step (pass.h): what depends on no gradient that arrives.
std::vector<bool> values_of_forward_pass(const Graph& g);

}  // namespace lumen::graph
