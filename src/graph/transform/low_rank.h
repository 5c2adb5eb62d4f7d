// add_low_rank: products with a weight get an additional low-rank branch (LoRA): y += scale (x A^T) B^T. The weight
// stays in its stored format. With magnitudes (DoRA) the sum is scaled row by row,
//
//   y[n] = magnitude[n] / |W + scale B A|[n] (W x + scale B A x)[n]
//
// whose norms are a data input until fill_norms computes them: a gradient taken in between treats them as constants, as
// the method requires. Proved by tests/graph/transform/low_rank_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct LowRank {
  std::string weight;  // a parameter input: a matrix [N, K], or matrices [E, N, K] that rows select
  int64_t rank = 0;
  // False: for products with the weight; a is [rank, K], or [E, rank, K]. True: for a gather of its rows; a is [N,
  // rank].
  bool rows = false;
  double scale = 1;
  // The fraction of x that dropout zeroes in the low-rank branch of a product; the rest is scaled up accordingly. The
  // mask is a function of (the input kDropoutSeed, salt, element).
  double dropout = 0;
  uint32_t salt = 0;
  bool magnitudes = false;
  // The weight's own output is multiplied by a number for each of its rows (low_rank_gain), the change is not: this
  // merges several adapters with known magnitudes.
  bool gain = false;
  // Names of the inputs a and b; empty: low_rank_a(weight), low_rank_b(weight). Not with magnitudes.
  std::string a_name = {}, b_name = {};
};

inline constexpr const char* kDropoutSeed = "step.dropout";  // u32, rank 0, data

// The new inputs, f32: a, and b as [N, rank], [E, N, rank], or [K, rank] where rows are gathered.
std::string low_rank_a(const std::string& weight);
std::string low_rank_b(const std::string& weight);
// With magnitudes, for each row of the weight ([N] or [E, N]; [K], for its columns, where rows are gathered): the
// parameter, and the data that fill_norms needs: the sum of the weight's squares.
std::string low_rank_magnitude(const std::string& weight);
std::string low_rank_squares(const std::string& weight);
// With gain, a parameter of that shape.
std::string low_rank_gain(const std::string& weight);
Shape low_rank_rows(const Shape& weight, bool rows);

// The uses of a graph's weights that changes can be added to.
struct LowRankPlaces {
  bool products = false, rows = false;
};
std::map<std::string, LowRankPlaces> low_rank_places(Graph g);

// The graph has no calls and is simplified: each use refers to its weight directly. Error when a weight has no use of
// its kind, or is no matrix.
Graph add_low_rank(Graph g, const std::vector<LowRank>& parts);

// Computes the norms: from the weight's squares, a product of A with the weight as it is stored, and products of A and
// B alone. No value of the weight's size is computed.
Graph fill_norms(Graph g, const std::vector<LowRank>& parts);

}  // namespace lumen::graph
