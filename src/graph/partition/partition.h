// Tensor parallelism: one graph that several ranks run together, each with a part of its parameters. An annotation
// defines which inputs are split along which axis (found here, too: find_partition); from there every value is
// replicated, split along an axis, or a partial sum, by the algebra of its operator alone. Where an operator needs
// another form, ranks exchange values. All ranks run the same graph; the input kTensorRank is the number of the rank.
// Proved by tests/graph/partition.
//
// May include: base, graph/ir, graph/match, number/formula.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "graph/partition/split.h"

namespace lumen::graph {

inline constexpr const char* kTensorRank = "tensor.rank";  // i32, rank 0

struct TensorSplit {
  int ranks = 1;
  std::map<std::string, Split> inputs;  // those that are split; all others are replicated
  // Sequence parallelism: sums with values for each token are reduce-scattered along tokens instead of all-reduced, and
  // all-gathered where products with split weights read them.
  bool sequence = false;
};

// The axis of token data to split: the first that `ranks` divides of the first two; nullopt if none.
std::optional<int> tokens_axis(const Shape& tokens, int ranks);

// The exchanges of a partitioned graph; counts a rank's own numbers once.
struct Exchanged {
  int64_t sums = 0, gathers = 0;        // of partial sums, and of split values needed whole
  int64_t summed = 0, gathered = 0;     // numbers
  int64_t scatters = 0, scattered = 0;  // sums that are scattered along tokens, and their numbers
};

// The graph of one rank; names and order of inputs and results stay. Results are replicated, except: a result that
// `partition` lists as an input is split like that input (sums of gradients), and results accepted by `stays_partial`
// may be partial sums. No calls, extents are numbers. Error (user) when an operator cannot be computed in parts.
Graph partitioned(const Graph& g, const TensorSplit& partition,
                  const std::function<bool(const std::string& result)>& stays_partial = {},
                  Exchanged* exchanged = nullptr);

// Finds pairs of products with only elementwise or per-head operations between them: the first one's weight is split by
// rows, the second one's by columns, and one sum is exchanged. Embedding tables and last products are split by rows
// where that costs only exchanges of sums. The function is one that a trainer differentiates; `may_split`: names of
// parameters. Error (usage) that names a product whose parts the ranks do not divide, or reports that there is none.
TensorSplit find_partition(const Graph& g, int ranks,
                           const std::function<bool(const std::string& parameter)>& may_split);

}  // namespace lumen::graph
