// What products of a family read while images are drawn: at all steps from noise to image, as quantization after
// training needs it. Proved by tests/model/diffuse/quantize_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/sites/sites.h"
#include "model/diffuse/diffuse.h"

namespace lumen::model {

struct ProductReads {
  graph::ProductSite site;
  std::vector<float> most,
      least;                // of columns, over all rows that were read: the largest x, and the largest -x, from 0
  std::vector<float> rows;  // [count, columns]: some of every step, drawn
  int64_t count() const { return std::ssize(rows) / site.columns; }
};

struct KeptReads {
  int64_t rows = 1024;  // that are kept of each product, at most
  uint64_t seed = 1;    // which ones
};

// Draws images of these labels and keeps what was read: of convolutions, windows of drawn places. By the network as it
// is: without a change. Fewer when `stop` became true. `left` becomes what products read and no site has.
std::vector<ProductReads> collect_reads(Network& network, const std::vector<int32_t>& labels, Sampling how,
                                        const KeptReads& options, const std::atomic<bool>* stop = nullptr,
                                        const std::function<void(int64_t)>& told = {},
                                        std::vector<graph::LeftWeight>* left = nullptr);

}  // namespace lumen::model
