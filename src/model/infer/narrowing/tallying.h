// Adds up the tokens of rows on the device: how many of them are better than each of some edges, and their weights. A
// cut by a share of the weight or by a number of tokens is found so, edge by edge, without an order of the tokens
// (sample/distant_row.h). Proved by tests/model/infer/narrowing/further_rows_test.cpp.
#pragma once

#include <span>

#include "graph/ir/graph.h"
#include "model/arch/model.h"
#include "model/infer/narrowing/narrowing.h"

namespace lumen::model::infer {

class Tallying {
 public:
  // Inputs besides Narrowing::kLogits, kMasks and kScales: f32 [R, kEdges] and i32 [R, kEdges], the logits of edges
  // and their ids; f32 [R, 2], the best logit and the center of moments.
  static constexpr const char* kEdges = "edges";
  static constexpr const char* kLasts = "lasts";
  static constexpr const char* kPoints = "points";
  static constexpr const char* kTallied = "tallied";  // result: f32 [R, kWidth]
  static constexpr int64_t kOfRow = 6;                // numbers that belong to no edge
  static constexpr int64_t kWidth = 3 * RowSource::kMostEdges + kOfRow;

  static graph::Graph graph(const arch::Library& library, const Narrowing& narrowing);
  // Fills a row's inputs, and decodes its result.
  static void ask(const RowSource::Count& what, std::span<float> edges, std::span<int32_t> lasts,
                  std::span<float> points, float* scale);
  static Tallies read(std::span<const float> row, size_t edges);
};

}  // namespace lumen::model::infer
