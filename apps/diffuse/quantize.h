// Post-training quantization that follows the structure of a family's graph (SegQuant, Zhang et al. 2025, arXiv
// 2507.14811), and its baselines: separate scales for segments of products, and for both signs of SiLU's and GELU's
// outputs, divided columns (SmoothQuant, Xiao et al. 2023), a low-rank branch (SVDQuant, Li et al. 2024), rounding with
// error feedback (GPTQ, Frantar et al. 2023). For any formats.
// Proved by tests/apps/diffuse/quantize_test.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/diffuse/reads.h"
#include "apps/diffuse/sites/quantized_products.h"
#include "run/engine/engine.h"

namespace lumen::diffuse {

enum class Dividing : uint8_t { none, fixed, searched };

struct QuantizeMethod {
  std::string name;
  bool has_segments = false, has_both_signs = false;
  // Columns of activations are divided by m = max|x|^alpha / max|w|^(1 - alpha): with alpha 0.5 (fixed), or the one of
  // 0, 0.1 .. 1 with the least squared error of a segment's output (searched).
  Dividing dividing = Dividing::none;
  bool has_branch = false;    // of the requested rank
  bool has_feedback = false;  // codes compensate each other's errors
};
// By name; error (exit 2) that lists all.
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
  std::vector<double> alphas;  // by part, where columns are divided
  // Euclidean norms over the kept rows: of y, and of its error.
  double signal = 0, error = 0;
};

// Quantizes weights [rows, columns] by their sites' inputs; for a convolution by windows, whose channels are divided.
// Segment borders that the formats' blocks do not allow are dropped. Not thread-safe.
class Quantization {
 public:
  Quantization(run::Engine& engine, QuantizeFormats formats, int64_t rank);
  ~Quantization();
  // Error (exit 1) for formats without an encoder.
  QuantizedWeight weight(const QuantizeMethod& method, const ProductReads& reads, std::span<const float> w);

 private:
  class Product;
  struct Tools;
  QuantizeFormats formats_;
  int64_t rank_;
  std::unique_ptr<Tools> tools_;
};

using QuantizedWeights = std::vector<QuantizedWeight>;

// All products of a network, with averaged weights; as many as `reads`. `told` receives each weight's name.
QuantizedWeights quantize_network(run::Engine& engine, const apps::Network& network,
                                  std::span<const ProductReads> reads, const QuantizeMethod& method,
                                  const QuantizeFormats& formats, int64_t rank,
                                  const std::function<void(const std::string& weight)>& told = {});
// From now on the network's functions with this change compute with codes.
void use_quantized(apps::Network& network, const QuantizedWeights& weights, const std::string& change);

}  // namespace lumen::diffuse
