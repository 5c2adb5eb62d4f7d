// Tensor parallel: one graph that several ranks run together, each with a part of its parameters. An annotation says
// which inputs are split along which axis (found here, too: find_partition); from there every value is replicated,
// split along an axis, or a partial sum, by the algebra of its operator alone, and where one is needed as it is not,
// ranks exchange. All ranks run the same graph; the input kTensorRank says which one it is.
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
  // Sequence parallel: sums of what there is for each token are scattered along tokens, not known to every rank, and
  // gathered where products with split weights read them.
  bool sequence = false;
};

// The axis of what data have for each token that ranks divide: the first, or else the second one; none.
std::optional<int> tokens_axis(const Shape& tokens, int ranks);

// What partitioned graphs exchange, a rank's own numbers counted once.
struct Exchanged {
  int64_t sums = 0, gathers = 0;        // of partial sums, and of parts that somebody needs as a whole
  int64_t summed = 0, gathered = 0;     // numbers
  int64_t scatters = 0, scattered = 0;  // sums that are dealt along tokens, and their numbers
};

// The graph of one rank; names and order of inputs and results stay. Results are replicated, but for those that
// `partition` names as inputs of the same name are (sums of gradients), and those that `stays_partial` lets be partial
// sums. No calls, extents are numbers. Error (user) when something cannot be computed in parts.
Graph partitioned(const Graph& g, const TensorSplit& partition,
                  const std::function<bool(const std::string& result)>& stays_partial = {},
                  Exchanged* exchanged = nullptr);

// Pairs of products between which everything is done element by element, or head by head: the first one's weight is
// split by rows, the second one's by columns, and one sum is exchanged. Tables and last products are split by rows
// where nothing but sums is exchanged for it. Of a function as a trainer differentiates it; `may_split`: names of
// parameters. Error (usage) that says which product of parts ranks do not divide, or that there is none.
TensorSplit find_partition(const Graph& g, int ranks,
                           const std::function<bool(const std::string& parameter)>& may_split);

}  // namespace lumen::graph
