// Inputs of a family's products during sampling: at all steps from noise to image, for post-training quantization.
// Proved by tests/apps/diffuse/quantize_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "apps/diffuse/diffuse.h"
#include "apps/diffuse/sites/sites.h"

namespace lumen::diffuse {

struct ProductReads {
  graph::ProductSite site;
  std::vector<float> most,
      least;                // of columns, over all rows: the largest x, and the largest -x, at least 0
  std::vector<float> rows;  // [count, columns]: a random sample of every step
  int64_t count() const { return std::ssize(rows) / site.columns; }
};

struct KeptReads {
  int64_t rows = 1024;  // kept for each product, at most
  uint64_t seed = 1;    // of the sample
};

// Samples images of these labels and collects inputs: for convolutions, windows at random places. With the unchanged
// network. Fewer when `stop` became true. `left` receives weights of products that have no site.
std::vector<ProductReads> collect_reads(apps::Network& network, const std::vector<int32_t>& labels, Sampling how,
                                        const KeptReads& options, const std::atomic<bool>* stop = nullptr,
                                        const std::function<void(int64_t)>& told = {},
                                        std::vector<graph::LeftWeight>* left = nullptr);

}  // namespace lumen::diffuse
