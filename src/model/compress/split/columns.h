// Columns of weights sorted by their influence on the loss: sums over a column of the diagonal of the Fisher matrix,
// F[c] = sum over tokens of |g|^2 x[c]^2, where x is the weight's input and g the gradient of the text's loss for its
// product's output. Weights with the same input share an order. Proved by tests/model/compress/split/split_test.cpp.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/equivalence/rows_before.h"
#include "model/calibrate/layer_run.h"

namespace lumen::model::compress {

// Weights with the same input.
struct ColumnGroup {
  std::vector<std::string> weights;  // parameters that may be split, in the order of the graph
  int64_t columns = 0;
  // The rows of earlier weights that are permuted with the columns, where that suffices; else the input is gathered at
  // run time.
  std::optional<graph::RowsBefore> before;
  std::vector<int64_t> order;   // of columns, the most important first
  std::vector<double> impacts;  // of columns, unsorted: F per token, summed over weights (and matrices)
};

// Groups of layers' weights among `names` that may be split, without orders. Rows of earlier weights are not permuted
// where the group's input has readers that are not matrices of the model.
std::vector<ColumnGroup> column_groups(const arch::Model& model, const std::vector<std::string>& names);
// Fills in impacts and orders: forward and backward over the text, layer by layer. `folder`: of values between layers;
// empty: memory. `progress`: fraction done.
void rank_columns(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                  const calibrate::LayerRunOptions& options, const std::filesystem::path& folder,
                  std::vector<ColumnGroup>& groups, const std::function<void(double)>& progress = {});

// The number of columns for a ratio: rounded up to whole blocks of both formats, leaving at least one block for the
// other; 0 for ratio 0, or where the weight is too small for such a part.
int64_t high_columns(double ratio, int64_t columns, const Format& high, const Format& low);

}  // namespace lumen::model::compress
