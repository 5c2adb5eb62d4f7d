// differentiate_by_rows: see reverse.h. The wide product's rows meet nobody before few numbers of each are left, so its
// gradient needs nothing of other rows once the gradient of those numbers is known, which for a mean or a weighted sum
// it is beforehand. Proved by tests/graph/by_rows_test.cpp.
#include <algorithm>

#include "graph/grad/differentiation.h"
#include "graph/grad/reverse.h"
#include "graph/grad/row_tail.h"
#include "graph/ir/rewrite.h"

namespace lumen::graph {

namespace {

constexpr int64_t kLeastRows = 512;  // of a part: below, products no longer fill a machine
// Every part is a copy of the tail in the graph, which all later passes walk. With so many, what a part stores is
// little beside what the model stores of as many rows, so more would buy nothing for the time they cost.
constexpr int64_t kMostParts = 64;

// As few parts as keep one below most_bytes, or as near to that as kMostParts comes; 1 when rows cannot be parted.
int64_t parts_of(int64_t rows, int64_t bytes, int64_t most_bytes, int64_t least_rows) {
  int64_t best = 1;
  const int64_t most = std::min(kMostParts, rows / least_rows);
  for (int64_t parts = 2; parts <= most && bytes / best > most_bytes; ++parts)
    if (rows % parts == 0) best = parts;
  return best;
}

class ByRows {
 public:
  ByRows(Graph& g, const RowTail& tail) : g_(g), tail_(tail), first_(static_cast<ValueId>(g.nodes.size())) {}

  // The gradients of the exits; false when they depend on the product.
  bool seed(ValueId loss) {
    Differentiation head(g_, loss, tail_.exits);
    head.reverse().add(loss, head.reverse().build.scalar(1, g_[loss].type.element.scalar));
    seeds_.assign(tail_.exits.size(), -1);
    head.sweep(0, loss + 1, tail_.exits, &seeds_);
    std::vector<bool> depends = tail_.depends;
    depends.resize(g_.nodes.size());
    for (ValueId v = first_; v < static_cast<ValueId>(g_.nodes.size()); ++v)
      depends[v] = std::any_of(g_[v].operands.begin(), g_[v].operands.end(), [&](ValueId o) { return depends[o]; });
    return std::all_of(seeds_.begin(), seeds_.end(), [&](ValueId s) { return s >= 0 && !depends[s]; });
  }

  ValueId run(ValueId loss, int64_t parts, const std::vector<ValueId>& with_respect_to,
              std::vector<ValueId>* gradients) {
    Differentiation d(g_, loss, with_respect_to);
    Reverse& r = d.reverse();
    const auto rows_begin = static_cast<ValueId>(g_.nodes.size());
    RowCopy copy(g_, tail_);
    copy.flatten();
    std::vector<ValueId> flat_seeds;
    for (size_t k = 0; k < seeds_.size(); ++k)
      flat_seeds.push_back(flatten_rows(r.build, seeds_[k], Shape(g_[tail_.exits[k]].type.shape), tail_.rows));
    const auto rows_end = static_cast<ValueId>(g_.nodes.size());
    d.spread(rows_begin, rows_end);
    std::vector<std::vector<ValueId>> results(tail_.exits.size());
    const int64_t count = tail_.rows / parts;
    for (int64_t part = 0; part < parts; ++part) {
      const auto begin = static_cast<ValueId>(g_.nodes.size());
      const std::vector<ValueId> exits = copy.part(part * count, count);
      const auto end = static_cast<ValueId>(g_.nodes.size());
      std::vector<ValueId> arriving;
      for (size_t k = 0; k < exits.size(); ++k) {
        results[k].push_back(exits[k]);
        arriving.push_back(slice_rows(r.build, flat_seeds[k], part * count, count));
      }
      d.sweep_appended(begin, end, exits, exits, arriving);
      r.settle(rows_end);
    }
    const ValueId total = head(loss, r.build, results);
    d.sweep(rows_begin, rows_end, {}, nullptr);
    d.sweep(0, first_, with_respect_to, gradients);
    return total;
  }

 private:
  // What follows the exits, once more, from their parts.
  ValueId head(ValueId loss, Builder& build, const std::vector<std::vector<ValueId>>& results) {
    std::vector<ValueId> now(static_cast<size_t>(loss) + 1);
    for (ValueId v = 0; v <= loss; ++v) {
      now[v] = v;
      if (!tail_.depends[v] || tail_.contains[v]) continue;
      Node copy = g_[v];
      for (ValueId& o : copy.operands) {
        const auto exit = std::find(tail_.exits.begin(), tail_.exits.end(), o);
        if (exit != tail_.exits.end() && now[o] == o)
          now[o] = build.reshape(build.concat(results[static_cast<size_t>(exit - tail_.exits.begin())], 0),
                                 g_[o].type.shape);
        o = now[o];
      }
      g_.nodes.push_back(std::move(copy));
      now[v] = static_cast<ValueId>(g_.nodes.size()) - 1;
    }
    return now[loss];
  }

  Graph& g_;
  const RowTail& tail_;
  ValueId first_;               // of what was appended
  std::vector<ValueId> seeds_;  // gradients of the exits
};

}  // namespace

std::vector<ValueId> differentiate_by_rows(Graph& g, ValueId& loss, const std::vector<ValueId>& with_respect_to,
                                           int64_t most_bytes) {
  check_loss(g, loss);
  const auto tail = find_row_tail(g, loss, most_bytes);
  if (!tail) return differentiate(g, loss, with_respect_to);
  const int64_t bytes = byte_size(g[tail->product].type);
  // A row may be wider than a part: then a part is one row.
  const int64_t least = std::min(kLeastRows, std::max<int64_t>(1, most_bytes / (bytes / tail->rows)));
  const int64_t parts = parts_of(tail->rows, bytes, most_bytes, least);
  const size_t before = g.nodes.size();
  ByRows by_rows(g, *tail);
  if (parts == 1 || !by_rows.seed(loss)) {
    g.nodes.resize(before);
    return differentiate(g, loss, with_respect_to);
  }
  std::vector<ValueId> gradients(with_respect_to.size(), -1);
  loss = by_rows.run(loss, parts, with_respect_to, &gradients);
  Builder build(g);
  complete_gradients(build, with_respect_to, &gradients);
  return gradients;
}

}  // namespace lumen::graph
