// The tail of a loss over rows: from one wide product (logits) to a few numbers per row, with all nodes in between
// computed row by row. Found here, so that the gradient can process it in parts (by_rows.cpp). Numeric dims, no calls.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

struct RowTail {
  ValueId product = -1;  // the contract
  int64_t rows = 0;
  // The product, the row-wise nodes after it, and the row-wise nodes those read: wide masks and the like, and nodes
  // after other wide products (a teacher's); in order.
  std::vector<ValueId> nodes;
  std::map<ValueId, int> rows_side;  // of each product among them: the operand that has the rows
  std::vector<bool> contains;        // by value: one of them
  std::vector<ValueId> exits;        // those of them with outside readers: a few numbers a row
  std::vector<bool> depends;         // by value: on the product
};

// The tail after the largest product of more than `least_bytes` whose rows are combined only after each is reduced to a
// few numbers; nullopt when there is none.
std::optional<RowTail> find_row_tail(const Graph& g, ValueId loss, int64_t least_bytes);

// v with its row axes, which lead as in a value of shape `like`, flattened to one; and a slice of such rows.
ValueId flatten_rows(Builder& build, ValueId v, const Shape& like, int64_t rows);
ValueId slice_rows(Builder& build, ValueId v, int64_t first, int64_t count);

// The number of leading axes that form the rows: the shortest prefix with that many elements. -1: none.
int row_axes(const Shape& shape, int64_t rows);

// Copies the tail for the rows [first, first + count) to the end of the graph, its rows flattened into one axis.
class RowCopy {
 public:
  RowCopy(Graph& g, const RowTail& tail);
  // Values of rows outside the tail, flattened to [rows, ...]: appended once, before the first part.
  void flatten();
  // Later parts' products depend on a number that is 0 but computed from `number`, so that they are recomputed instead
  // of shared with earlier parts.
  ValueId nothing_of(ValueId number);
  void wait_for(ValueId nothing);
  // Returns the copies of the exits, [count, ...].
  std::vector<ValueId> part(int64_t first, int64_t count);
  const std::vector<ValueId>& flat() const { return flat_; }

 private:
  ValueId operand(ValueId v, const Node& user, int64_t first, int64_t count);

  Builder build_;
  const RowTail& tail_;
  std::vector<ValueId> flat_;  // by value, -1: none
  std::vector<ValueId> now_;   // by value: its copy in the part being appended
};

}  // namespace lumen::graph
