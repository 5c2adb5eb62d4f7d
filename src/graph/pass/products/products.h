// Mixed precision and quantization recipes for products (round_products, learn_scales), including those in scans'
// steps: the role of each product of a graph in a recipe (here), the conversion of its operands (round.cpp), and the
// additional inputs for that (supplies.h). Proved by tests/graph/round_test.cpp and
// tests/graph/steps/rounded_scan_test.cpp.
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

// The context of a scan's body in the graph around it. Body inputs that are parameters outside have that role and name
// while the body is rounded.
struct Around {
  std::vector<bool> gradients;  // inputs of the body that are of the backward pass, by value
  bool trains = false;          // Products::trains_
  // The largest magnitude of a parameter input, if known: one number, outside the scan.
  std::function<ValueId(ValueId input, const std::string& weight)> largest;
};

// `around`: null for a graph that is no body; it outlives this.
class Products {
 protected:
  Products(const Graph& g, const ProductType& type, const Around* around);

  bool is_f32(ValueId v) const { return g_[v].type.element == Element{}; }
  bool is_rounded_product(ValueId v) const;
  // Whether one operand of a product depends on data and the other only on parameters.
  bool takes_parameter(ValueId product) const;
  // Whether v is an operand of the product as part of an attention.
  bool attends(ValueId product, ValueId v) const;
  bool attends(ValueId product) const;
  // A product whose only reader is a map that also reads a later product: a kernel has one product, so this one is
  // written to memory.
  bool is_summand(ValueId v) const;
  bool feeds_product(ValueId v) const;
  // Matrix instructions take codes in groups of 16; values that a reduction reads (logits) need more precision.
  bool takes_codes(ValueId v) const;
  // Products of the forward pass that a reduction reads need more precision than codes have (logits above all), and so
  // do the gradients of their operands: the products with the same parameter, and those of their other operands.
  // Gradients that are summed for a bias are no such products.
  void find_precise();
  ValueId below(ValueId v) const { return below_order(g_, v); }
  bool is_reduced(ValueId v) const;
  // The kind of this product among a linear layer's three; nullopt for other products.
  std::optional<ProductKind> kind_of(ValueId v) const;
  // The recipe's format of an operand; null: the scalar type. Weights stored in a file's format are unchanged.
  FormatRef format_of(ValueId product, int side) const;
  bool lies_in_format(ValueId v) const;
  // The parameter whose layer provides the random seed for an operand: of this product, or if both operands are data
  // (as for the gradient of a weight), of another product that reads one of them.
  std::string drawn_for(ValueId product, ValueId v) const;
  void find_owners();
  bool is_random(ValueId v) const;
  // Both operands are rotated, or neither.
  int64_t rotation_of(ValueId product) const;
  // Rotation changes the numbers, so a known largest magnitude does not apply.
  void require_fitted(ValueId product, ValueId v, const FormatRef& f) const;
  // Learned scales belong to the forward product: its operands arrive here as codes (learned_scales.h). In another
  // format they are fitted.
  FieldSource source_of_scale(ValueId v) const;
  FieldSource recipe_source(ValueId v) const;
  // Whether an operand is decoded from codes of this format, under scales that a recipe of products learns.
  bool is_learned_as(ValueId v, const Format& f) const;
  // The weight of the last product a value depends on.
  std::string projection_of(ValueId v) const;
  // The parameter of a product, or the product's number if both operands are data.
  std::string weight_of(ValueId product) const;
  std::string parameter_of(ValueId v) const;  // the first source of a value that depends only on parameters
  // A format of small floats with no other fields.
  static bool is_without_scale(const Format& f);
  // A value that only products read needs no more precision between its computation and its encoding.
  bool products_alone_read(ValueId v) const;

  const Graph& g_;
  const ProductType& type_;
  const Around* around_;
  Users users_;
  std::set<ValueId> attended_;            // operands of attentions, below reshapes and permutes
  std::vector<bool> data_;                // depends on more than parameters
  std::set<ValueId> precise_;             // products that take no codes
  std::vector<bool> forward_;             // values of the forward pass; empty: not needed
  std::map<ValueId, std::string> owner_;  // of a product's operand below views: that product's parameter
  bool trains_ = false;
};

}  // namespace lumen::graph
