// add_low_rank: products with a weight get a second, narrow way beside it: y += scale (x A^T) B^T. The weight stays as
// it is stored, whatever its format. With magnitudes (DoRA) the sum is stretched row by row,
//
//   y[n] = magnitude[n] / |W + scale B A|[n] (W x + scale B A x)[n]
//
// whose norms are a data input until fill_norms computes them: a gradient taken in between holds them constant, as the
// method asks. Proved by tests/graph/transform/low_rank_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct LowRank {
  std::string weight;  // a parameter input: a matrix [N, K], or matrices [E, N, K] that rows pick
  int64_t rank = 0;
  // False: beside products with the weight; a is [rank, K], or [E, rank, K]. True: beside reading its rows by number; a
  // is [N, rank].
  bool rows = false;
  double scale = 1;
  // The share of x that the narrow way of a product leaves out; the rest grows accordingly. What is drawn is a function
  // of (the input kDropoutSeed, salt, element).
  double dropout = 0;
  uint32_t salt = 0;
  bool magnitudes = false;
  // What the weight itself gives is multiplied by a number for each of its rows (low_rank_gain), the change is not: how
  // several adapters with magnitudes that are known run as one.
  bool gain = false;
  // Names of the inputs a and b; empty: low_rank_a(weight), low_rank_b(weight). Not with magnitudes.
  std::string a_name = {}, b_name = {};
};

inline constexpr const char* kDropoutSeed = "step.dropout";  // u32, rank 0, data

// The new inputs, f32. a, and b [N, rank], [E, N, rank], or [K, rank] where rows are read.
std::string low_rank_a(const std::string& weight);
std::string low_rank_b(const std::string& weight);
// With magnitudes, of each row of the weight ([N] or [E, N]; [K], of its columns, where rows are read): the parameter,
// and the data fill_norms needs: the sum of the weight's squares.
std::string low_rank_magnitude(const std::string& weight);
std::string low_rank_squares(const std::string& weight);
// With gain, a parameter of that shape.
std::string low_rank_gain(const std::string& weight);
Shape low_rank_rows(const Shape& weight, bool rows);

// How the weights of a graph are used that changes could be added to.
struct LowRankPlaces {
  bool products = false, rows = false;
};
std::map<std::string, LowRankPlaces> low_rank_places(Graph g);

// The graph has no calls and is simplified: each use of a weight names it itself. Error when a weight has no use of its
// kind, or is no matrix.
Graph add_low_rank(Graph g, const std::vector<LowRank>& parts);

// Norms become values: the weight's squares, a product of A with the weight as it is stored, and products of A and B
// alone. Nothing of the weight's size is computed.
Graph fill_norms(Graph g, const std::vector<LowRank>& parts);

}  // namespace lumen::graph
