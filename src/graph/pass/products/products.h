// What mixed precision and recipes make of products (round_products, learn_scales), in scans' steps as well: what each
// product of a graph is to a recipe (here), what its operands become (round.cpp), and what that needs beside the
// numbers (supplies.h). Proved by tests/graph/round_test.cpp and tests/graph/steps/rounded_scan_test.cpp.
//
// May include: base, graph/ir, graph/match, graph/pass, graph/pass/learned, number/facts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/match/attend.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

// What is known of a scan's body from where the scan stands. Its inputs that are parameters there have that role and
// that name while it is rounded.
struct Around {
  std::vector<bool> gradients;  // inputs of the body that are of the backward pass, by value
  bool trains = false;          // Products::trains_
  // What is known of the largest magnitude of an input that is a parameter, one number where the scan stands.
  std::function<ValueId(ValueId input, const std::string& weight)> largest;
};

// `around`: null for a graph that is no body; it outlives this.
class Products {
 protected:
  Products(const Graph& g, const ProductType& type, const Around* around);

  bool is_f32(ValueId v) const { return g_[v].type.element == Element{}; }
  bool is_rounded_product(ValueId v) const;
  // Whether one side of a product is data and the other parameters.
  bool takes_parameter(ValueId product) const;
  // Whether a product reads v as an attention does.
  bool attends(ValueId product, ValueId v) const;
  bool attends(ValueId product) const;
  // A product that one map alone reads, beside a later product: a kernel has one, so this one goes through memory.
  bool is_summand(ValueId v) const;
  bool feeds_product(ValueId v) const;
  // Instructions take codes in groups of 16; what a reduction reads (logits) needs more digits.
  bool takes_codes(ValueId v) const;
  // Products of the forward pass that a reduction reads need more digits than codes have (logits above all), and so do
  // the gradients of their operands: the products with the same parameter, and those of what those read. Gradients that
  // are summed for a bias are no such products.
  void find_precise();
  ValueId below(ValueId v) const { return below_order(g_, v); }
  bool is_reduced(ValueId v) const;
  // What this product is of a linear layer's three; nothing for products that are none of them.
  std::optional<ProductKind> kind_of(ValueId v) const;
  // What the recipe holds an operand in; null: the scalar type. Weights that lie in a file's format stay as they are.
  FormatRef format_of(ValueId product, int side) const;
  bool lies_in_format(ValueId v) const;
  // The parameter whose layer has the seed of what is drawn for an operand: of this product, or where both operands are
  // data, as for the gradient of a weight, of another product that reads one of them.
  std::string drawn_for(ValueId product, ValueId v) const;
  void find_owners();
  bool is_random(ValueId v) const;
  // Both operands are rotated, or neither.
  int64_t rotation_of(ValueId product) const;
  // Rotated numbers are other numbers: what is known of the largest is not of them.
  void require_fitted(ValueId product, ValueId v, const FormatRef& f) const;
  // Scales that are learned are those of the forward product: its operands come here as codes (learned_scales.h). In
  // another format they are fitted.
  FieldSource source_of_scale(ValueId v) const;
  FieldSource recipe_source(ValueId v) const;
  // Whether an operand is what codes of this format stand for, under scales that a recipe of products learns.
  bool is_learned_as(ValueId v, const Format& f) const;
  // The weight of the last product that a value comes from.
  std::string projection_of(ValueId v) const;
  // The parameter of a product, or its number where both operands are data.
  std::string weight_of(ValueId product) const;
  std::string parameter_of(ValueId v) const;  // that a value of parameters alone is made of first
  // Codes of small floats and nothing else.
  static bool is_without_scale(const Format& f);
  // What nobody else reads is not worth more digits between where it is computed and where it is encoded.
  bool products_alone_read(ValueId v) const;

  const Graph& g_;
  const ProductType& type_;
  const Around* around_;
  Users users_;
  std::set<ValueId> attended_;            // what attentions multiply, below reshapes and permutes
  std::vector<bool> data_;                // depends on more than parameters
  std::set<ValueId> precise_;             // products that take no codes
  std::vector<bool> forward_;             // values of the forward pass; empty: nothing asks
  std::map<ValueId, std::string> owner_;  // of a value below its views that a product reads: that product's parameter
  bool trains_ = false;
};

}  // namespace lumen::graph
