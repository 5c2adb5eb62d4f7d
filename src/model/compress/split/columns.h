// Columns of weights by how much the loss depends on them: sums over a column of the diagonal of the Fisher matrix,
// F[c] = sum over tokens of |g|^2 x[c]^2, where x is what the weight reads and g what the text's loss gains by what its
// product gives. Weights that read the same value have one order. Proved by tests/model/compress/split/split_test.cpp.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/equivalence/rows_before.h"
#include "model/calibrate/layer_run.h"

namespace lumen::model {

// Weights that read the same value.
struct ColumnGroup {
  std::vector<std::string> weights;  // parameters that may be split, in the order of the graph
  int64_t columns = 0;
  // What changes places with the columns, where that is all it takes; else what is read is gathered while the model
  // runs.
  std::optional<graph::RowsBefore> before;
  std::vector<int64_t> order;   // of columns, the most important first
  std::vector<double> impacts;  // of columns, as they are: F per token, summed over weights (and matrices)
};

// Groups of weights of layers that may be split, without orders. Those among `names`; a group's rows before it are not
// taken where others of its readers are not matrices of the model.
std::vector<ColumnGroup> column_groups(const Model& model, const std::vector<std::string>& names);
// Fills in impacts and orders: forward and back over the text, layer by layer. `folder`: of values between
// layers; empty: memory. `progress`: the share that is done.
void rank_columns(run::Engine& engine, const Model& model, std::span<const TokenId> text,
                  const LayerRunOptions& options, const std::filesystem::path& folder, std::vector<ColumnGroup>& groups,
                  const std::function<void(double)>& progress = {});

// How many columns a share of them is: rounded up to whole blocks of both formats, at most all but a block of the
// other; 0 for a share of 0, or where the weight has room for no such part.
int64_t high_columns(double ratio, int64_t columns, const Format& high, const Format& low);

}  // namespace lumen::model
