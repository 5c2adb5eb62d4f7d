// Rotation sites: spaces whose orthogonal rotation parameters absorb: the residual stream, whose writers' rows and
// readers' columns are rotated, and values inside each head. A value that is read through a norm must not be multiplied
// per channel: gains must be 1, which folding them into the following weights ensures (a scale site whose one absorber
// is the gain). Proved by tests/graph/equivalence/sites_test.cpp and tests/model/compress/equivalent_transform.
#pragma once

#include "graph/equivalence/scale_sites.h"

namespace lumen::graph {

struct RotatedParameter {
  std::string parameter;
  Along along = Along::elements;
  // Block * width + position for each row-major element of those axes; -1: stays. Positions p of a block become sum
  // over i of old[i] R[i][p]. A block that occurs several times (heads that share values) is complete each time: the
  // first occurrences of each position belong together, then the second ones.
  std::vector<int32_t> places;
};

struct RotationSite {
  std::string value;   // its label, for messages
  int64_t width = 0;   // of a block: R is [width, width]
  int64_t blocks = 0;  // each may have a rotation of its own
  std::vector<RotatedParameter> changes;
  std::vector<std::string> gains;  // must be 1 everywhere
  std::vector<std::string> tied;   // weights of products that are also read by row: gains cannot be folded into them
  std::string reason;              // why there is no such rotation; empty if there is one
};

// The residual stream: the stream to which rows of an embedding are added.
RotationSite stream_rotation(const Graph& g);
// Inside each key head, for every attention.
std::vector<RotationSite> value_rotations(const Graph& g);

}  // namespace lumen::graph
