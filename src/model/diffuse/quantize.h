// Quantization after training that follows the structure of a family's graph (SegQuant, Zhang et al. 2025, arXiv
// 2507.14811), and what it is compared with: segments of products with scales of their own, both signs of what SiLU and
// GELU made with scales of their own, divided columns (SmoothQuant, Xiao et al. 2023), a way of low rank beside
// (SVDQuant, Li et al. 2024), rounding with error feedback (GPTQ, Frantar et al. 2023). Any formats.
// Proved by tests/model/diffuse/quantize_test.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/sites/quantized_products.h"
#include "model/diffuse/reads.h"
#include "run/engine/engine.h"

namespace lumen::model {

enum class Dividing : uint8_t { none, fixed, searched };

struct QuantizeMethod {
  std::string name;
  bool has_segments = false, has_both_signs = false;
  // Columns of activations are divided by m = max|x|^alpha / max|w|^(1 - alpha): alpha 0.5, or of 0, 0.1 .. 1 the one
  // by which a segment's output has the least squared error.
  Dividing dividing = Dividing::none;
  bool has_branch = false;    // of the rank that is asked for
  bool has_feedback = false;  // codes answer each other's errors
};
// By name; error (exit 2) names all.
QuantizeMethod quantize_method(const std::string& name);
const std::vector<QuantizeMethod>& quantize_methods();

struct QuantizeFormats {
  FormatRef weights, activations;
};

// An input of a changed graph.
struct HeldInput {
  graph::Type type;
  std::vector<uint8_t> bytes;
};

struct QuantizedWeight {
  graph::QuantizedProduct product;
  std::map<std::string, HeldInput> inputs;
  std::vector<double> alphas;  // of parts, where columns are divided
  // Euclidean norms over the rows that were kept: of y, and of what it is off.
  double signal = 0, error = 0;
};

// A weight [rows, columns] of the site by what it reads; of a convolution by windows, whose channels are divided.
// Borders that blocks of the formats do not allow are left out. Not thread-safe.
class Quantization {
 public:
  Quantization(run::Engine& engine, QuantizeFormats formats, int64_t rank);
  ~Quantization();
  // Error (exit 1) for formats that only decode.
  QuantizedWeight weight(const QuantizeMethod& method, const ProductReads& reads, std::span<const float> w);

 private:
  class Product;
  struct Tools;
  QuantizeFormats formats_;
  int64_t rank_;
  std::unique_ptr<Tools> tools_;
};

using QuantizedWeights = std::vector<QuantizedWeight>;

// All products of a network, by the mean of its weights over the steps; as many as `reads`. `told` hears which.
QuantizedWeights quantize_network(run::Engine& engine, const Network& network, std::span<const ProductReads> reads,
                                  const QuantizeMethod& method, const QuantizeFormats& formats, int64_t rank,
                                  const std::function<void(const std::string& weight)>& told = {});
// The network's functions, called with this change, are those of codes from now on.
void use_quantized(Network& network, const QuantizedWeights& weights, const std::string& change);

}  // namespace lumen::model
