// Casts that write one byte for each number of a matrix, which any kernel that computes the matrix can do: fuse groups
// them with the map they read. Proved by tests/graph/pass/group_codes.txt and separate_fits.txt.
#pragma once

#include <optional>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct ByteCast {
  ValueId source = -1;            // the encoded value, below reshapes and permutes
  bool transposed = false;        // the cast's rows are the source's columns
  int64_t rows = 1, columns = 1;  // of the cast
};
// nullopt for other casts, and if the source is a part of a value or in another order. Numeric dims.
std::optional<ByteCast> byte_cast(const Graph& g, ValueId v);

// The side of the squares of the matrix that contain the cast's tiles whole, in row-major order and transposed, so that
// the kernel that encodes a square finds all fields of the format there: none is supplied. 0: there are none.
int64_t fitted_square(const Graph& g, ValueId v);

// A byte cast whose fields above the element level are all supplied, or found in squares.
std::optional<ByteCast> encodable_cast(const Graph& g, ValueId v);

}  // namespace lumen::graph
