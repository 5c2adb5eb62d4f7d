// What an operand of a product becomes where it passes through a format: its axes in the order of the format's rows,
// encoded, decoded, and in their old order again. Rows, and blocks within them, lie along what the product sums, so
// that scales are constant where sums are; a format whose scales are those of the whole tensor or of square tiles is
// the same for either order, and a weight then has one encoding for the forward and the backward pass. Proved by
// tests/graph/operand_formats_test.cpp.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

class OperandEncoder {
 public:
  explicit OperandEncoder(Rewriter& r) : r_(r) {}
  // `v`: an operand of r.from whose axes are `letters`, of which the product keeps those of `kept`; `value`: what it is
  // in r.to, of any float type. Numeric extents. Error when the format's blocks do not divide what is summed.
  ValueId encoded(ValueId v, ValueId value, const std::string& letters, const std::string& kept, const FormatRef& f);

 private:
  Rewriter& r_;
  std::map<std::tuple<ValueId, std::string, const Format*>, ValueId> known_;  // by value, its axes in order, format
};

// Whether the encoding of a matrix's transpose is the transpose of its encoding.
bool is_same_transposed(const Format& f);

// What the first result is computed from: in a training step the loss, so that other values are gradients and updates.
std::vector<bool> values_of_forward_pass(const Graph& g);

}  // namespace lumen::graph
