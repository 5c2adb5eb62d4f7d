// [products] of a recipe: the formats that activations, weights and gradients of outputs pass through where products
// multiply them, by name; for all three products of a linear layer, or for one of them. Empty: as `precision` says.
#pragma once

#include <string>

#include "graph/pass/pass.h"
#include "number/library/library.h"

namespace lumen::model {

struct ProductSettings {
  std::string activation, weight, gradient;
  // In single products: the forward one, that of the gradient of its input, and that of the gradient of its weight.
  // "none": the type of everything else.
  std::string forward_activation, forward_weight;
  std::string input_weight, input_gradient;
  std::string weight_activation, weight_gradient;
  // Queries, keys and values where attentions multiply them, and the gradient of what they mixed.
  std::string attention, attention_gradient;
  // "nearest", or "stochastic".
  std::string activation_rounding = "nearest", weight_rounding = "nearest", gradient_rounding = "nearest";
  // "fitted", "delayed" (the largest of the last `history` steps), of activations and weights "learned" (parameters
  // that are trained) or, of weights, "predicted": by what their optimizer can move them at most, which is compared
  // with the weights every `rescale_every` steps. Of what attentions multiply: fitted or learned.
  std::string activation_scale = "fitted", weight_scale = "fitted", gradient_scale = "fitted";
  std::string attention_scale = "fitted";
  int64_t history = 16, rescale_every = 1;
  // Operands are rotated along what a product sums, runs of so many numbers (a power of two); 0: they are not.
  int64_t forward_rotation = 0, input_rotation = 0, weight_rotation = 0;

  bool learns_attention() const { return attention_scale == "learned"; }
  bool learns_activations() const { return activation_scale == "learned" || learns_attention(); }
  bool learns() const { return learns_activations() || weight_scale == "learned"; }
};

// Error for names of no format, and of formats that cannot be encoded.
// Null for "" and "none". `key`: where a recipe says the name.
FormatRef encodable(const std::string& key, const std::string& name, const FormatLibrary& formats);
void set_formats(graph::ProductType& type, const ProductSettings& settings, const FormatLibrary& formats);

}  // namespace lumen::model
