// The tail of a loss over rows: from one wide product (logits) to a few numbers per row, everything in between computed
// row by row. Found here, so that the gradient can take it in parts (by_rows.cpp). Numeric dims, no calls.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

struct RowTail {
  ValueId product = -1;  // the contract
  int64_t rows = 0;
  // The product, what follows it row by row, and what those read of the rows: wide masks and the like, and what comes
  // of other products as wide (a teacher's); in order.
  std::vector<ValueId> nodes;
  std::map<ValueId, int> rows_side;  // of each product among them: which of its operands holds the rows
  std::vector<bool> contains;        // by value: one of them
  std::vector<ValueId> exits;        // those of them that others read: a few numbers a row
  std::vector<bool> depends;         // by value: on the product
};

// The tail behind the largest product of more than `least_bytes` whose rows meet only where few numbers of each are
// left; nothing when there is none.
std::optional<RowTail> find_row_tail(const Graph& g, ValueId loss, int64_t least_bytes);

// v, whose rows are leading axes as those of a value of shape `like`, with one axis of them; and some of such rows.
ValueId flatten_rows(Builder& build, ValueId v, const Shape& like, int64_t rows);
ValueId slice_rows(Builder& build, ValueId v, int64_t first, int64_t count);

// How many leading axes hold the rows: the shortest prefix of that many elements. -1: none does.
int row_axes(const Shape& shape, int64_t rows);

// Copies the tail for the rows [first, first + count) to the end of the graph, its rows flattened into one axis.
class RowCopy {
 public:
  RowCopy(Graph& g, const RowTail& tail);
  // Values of rows outside the tail, flattened to [rows, ...]: written once, before the first part.
  void flatten();
  // Products of parts from here on wait for a number that is 0, made of another one: what they give is then computed
  // anew, not kept from before.
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
  std::vector<ValueId> now_;   // by value: its copy in the part being written
};

}  // namespace lumen::graph
