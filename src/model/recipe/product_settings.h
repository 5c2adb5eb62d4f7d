// [products] of a recipe: the formats to which the operands of matrix products (activations, weights and gradients of
// outputs) are quantized, by name; for all three products of a linear layer, or for one of them. Empty: as `precision`
// sets it.
#pragma once

#include <string>

#include "graph/pass/pass.h"
#include "number/library/library.h"

namespace lumen::model::recipe {

struct ProductSettings {
  std::string activation, weight, gradient;
  // For single products: forward, input gradient and weight gradient. "none": the type of the rest of the step.
  std::string forward_activation, forward_weight;
  std::string input_weight, input_gradient;
  std::string weight_activation, weight_gradient;
  // Queries, keys and values as operands of attention's products, and the gradient of attention's output.
  std::string attention, attention_gradient;
  // "nearest" or "stochastic".
  std::string activation_rounding = "nearest", weight_rounding = "nearest", gradient_rounding = "nearest";
  // "fitted" (from the current values), "delayed" (from the maximum of the last `history` steps), for activations and
  // weights "learned" (trained parameters), or for weights "predicted": from an upper bound that grows by the
  // optimizer's largest possible move and is reset to the true maximum every `rescale_every` steps. For attention:
  // fitted or learned.
  std::string activation_scale = "fitted", weight_scale = "fitted", gradient_scale = "fitted";
  std::string attention_scale = "fitted";
  int64_t history = 16, rescale_every = 1;
  // Operands are rotated (Hadamard) along the summed axis in blocks of this many numbers, a power of two; 0: none.
  int64_t forward_rotation = 0, input_rotation = 0, weight_rotation = 0;

  bool learns_attention() const { return attention_scale == "learned"; }
  bool learns_activations() const { return activation_scale == "learned" || learns_attention(); }
  bool learns() const { return learns_activations() || weight_scale == "learned"; }
};

// Error for unknown formats, and for those that cannot be encoded.
// Null for "" and "none". `key`: the recipe's key, for messages.
FormatRef encodable(const std::string& key, const std::string& name, const FormatLibrary& formats);
void set_formats(graph::ProductType& type, const ProductSettings& settings, const FormatLibrary& formats);

}  // namespace lumen::model::recipe
