// Casts that write one byte for each number of a matrix, which any kernel that computes the matrix can do: what fuse
// groups with the map below them. Proved by tests/graph/pass/group_codes.txt and separate_fits.txt.
#pragma once

#include <optional>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct ByteCast {
  ValueId source = -1;            // what is encoded, below reshapes and permutes
  bool transposed = false;        // the cast's rows are the source's columns
  int64_t rows = 1, columns = 1;  // of the cast
};
// Nothing for other casts, and where the source is a part of a value, or lies in another order. Numeric dims.
std::optional<ByteCast> byte_cast(const Graph& g, ValueId v);

// The side of squares of the matrix that the cast's tiles lie in whole, as they lie and transposed, where the kernel
// that encodes a square finds all fields of the format there: none is supplied. 0: there are none.
int64_t fitted_square(const Graph& g, ValueId v);

// A byte cast whose fields above the numbers are all supplied, or found in squares.
std::optional<ByteCast> encodable_cast(const Graph& g, ValueId v);

}  // namespace lumen::graph
