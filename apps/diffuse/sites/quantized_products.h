// quantize_products: products with weights become products of codes. A weight [N, K] is covered by parts, each with its
// own codes and scales and, optionally, numbers that columns of activations are divided by (smoothing) and a low-rank
// f32 branch (SVDQuant). Parts of the same rows are added, others are concatenated. A convolution's weight [N,
// window.., C] has parts of channels, K = places of the window x channels; its image is divided channel by channel.
//
//   formats with one scale for the tensor:  q = code(x f), f [K]: 1 / (scale * divisor);  y = (q C^T) g, g [N]: scales
//   others:                                 q = format(x f), fitted at run time; f: 1 / divisor, or none
//   dual:  max(x, 0) and min(x, 0) stacked, each with its own f and scale: one product reads the codes C once;
//          y = (q+ C^T) g+ + (q- C^T) g-
//
// The input of a convolution is encoded before its windows if each number's code is independent of the others given
// only static fields (int8): the padding of the image has the code of zero. In other formats a row is a window.
//
// Sums of products of codes are exact in f32 while they are below 2^24. The bias is unchanged. Proved by
// tests/apps/diffuse/sites/quantized_products_test.cpp and windows_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct QuantizedPart {
  // A range of the weight; in a convolution, channels [column / places, (column + columns) / places) at every place.
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  bool divides = false;  // columns of activations
  int64_t rank = 0;      // of the low-rank branch; 0: none
};

struct QuantizedProduct {
  std::string weight;  // a parameter [N, K], or [N, window.., C]
  FormatRef weights, activations;
  bool is_dual = false;
  std::vector<QuantizedPart> parts;  // by rows, then by columns; they cover the weight
  int64_t places = 1;                // of the window
};

// The inputs of a part, all of them parameters.
enum class PartInput : uint8_t {
  codes,             // [rows, coded_columns] in the weights' format, place by place; the tensor scale is 1
  factors,           // f32 [columns / places]
  negative_factors,  // the same of min(x, 0)
  gains,             // f32 [rows]
  negative_gains,
  narrow,  // f32 [rank, columns], applied to the original x
  wide,    // f32 [rows, rank]
};
// Columns of a part, padded with zeros to whole blocks of both formats.
int64_t coded_columns(const QuantizedProduct& product, const QuantizedPart& part);
std::string part_input(const std::string& weight, size_t part, PartInput what);
// The inputs that a part of the product has.
std::map<PartInput, Type> part_inputs(const QuantizedProduct& product, size_t part);

// Numeric dims. Calls are inlined. A weight that the graph does not have is skipped. Error where parts do not cover the
// weight.
Graph quantize_products(Graph g, const std::vector<QuantizedProduct>& products);

}  // namespace lumen::graph
