// add_taps: states that accumulate, over every run of a graph, statistics of the activations that products with weights
// read. Weights that read the same values share a tap. For a weight [E, N, K] whose matrices rows select, each matrix
// has its own sums. Sums are f32, in the fixed order of reductions, and runs are added in their order. Proved by
// tests/graph/transform/taps_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

class Builder;

// scatter_add of the values at the elements of an index, whose negative elements are dropped: [matrices, ..].
ValueId sum_by_matrix(Builder& build, ValueId value, ValueId index, const Dim& matrices);

// The statistics; each is a state that begins at zeros.
struct TapKinds {
  bool squares = false;     // [K] or [E, K]: sum of x^2
  bool magnitudes = false;  // [K] or [E, K]: sum of |x|
  bool largest = false;     // [K] or [E, K]: max of |x|
  bool gram = false;        // [K, K] or [E, K, K]: sum of x x^T
  bool rows = false;        // not a state: max |x| of each row of a run, f32 [rows], concatenated for several reads
  bool cross = false;       // [K, K] or [E, K, K]: sum of (x' - x) x^T, where x' are the copy's (beside())
  bool spread = false;      // [kSpreadEdges]: count of numbers x with |x| >= spread_edge(k), cumulative from above
  // [E, K], only where rows select: sum of (g x)^2, with g the router's weight of the row's output (1 where outputs are
  // added unweighted).
  bool weighed = false;
  TapKinds& operator|=(const TapKinds& other);
};

struct Tap {
  std::vector<std::string> weights;  // names of parameters
  int64_t columns = 1;               // K
  int64_t matrices = 0;              // E; 0: rows do not select
};

// Names of states and results. Counts [E] exist where rows select: the number of rows of each matrix.
inline constexpr const char* kTapSquares = "squares";
inline constexpr const char* kTapMagnitudes = "magnitudes";
inline constexpr const char* kTapLargest = "largest";
inline constexpr const char* kTapGram = "gram";
inline constexpr const char* kTapCross = "cross";
inline constexpr const char* kTapWeighed = "weighed";
inline constexpr const char* kTapCounts = "counts";
inline constexpr const char* kTapRows = "rows";
inline constexpr const char* kTapSpread = "spread";

// Eight edges per octave, from 2^-14 to 2^15.
inline constexpr int64_t kSpreadEdges = 29 * 8 + 1;
double spread_edge(int64_t k);

std::string tap_name(size_t tap, const std::string& kind);

// A graph and a copy of it in one, with the same parameters and different data: data inputs that are floats, and the
// results, have the suffix in the copy. `other`: by value of the first its counterpart.
Graph beside(const Graph& g, const std::string& suffix, std::vector<ValueId>* other);

// Numeric dims of weights; without calls, simplified. `other`: from beside(), whose first part is tapped; else empty.
Graph add_taps(Graph g, const TapKinds& kinds, std::vector<Tap>* taps, const std::vector<ValueId>& other = {});

}  // namespace lumen::graph
