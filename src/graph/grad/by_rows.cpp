// differentiate_by_rows: see reverse.h. Rows of the wide product are independent until each is reduced to a few
// numbers, so its gradient needs no other rows once the gradients of those numbers are known. For a mean or a weighted
// sum they are known in advance; for losses that mix rows all parts are first computed for those numbers alone, then
// once more.
// Proved by tests/graph/grad/by_rows_test.cpp.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "graph/grad/differentiation.h"
#include "graph/grad/reverse.h"
#include "graph/grad/row_tail.h"
#include "graph/ir/rewrite.h"

namespace lumen::graph {

namespace {

constexpr int64_t kLeastRows = 256;  // of a part: with fewer, products no longer fill a machine
// Every part is a copy of the tail in the graph, which all later passes process. At this limit a part's memory is small
// compared to the model's for as many rows, so more parts would cost time without benefit.
constexpr int64_t kMostParts = 64;

// The smallest number of parts that keeps one below most_bytes, or as close as kMostParts allows; 1 if rows cannot be
// split.
int64_t parts_of(int64_t rows, int64_t bytes, int64_t most_bytes, int64_t least_rows) {
  int64_t best = 1;
  const int64_t most = std::min(kMostParts, rows / least_rows);
  for (int64_t parts = 2; parts <= most && bytes / best > most_bytes; ++parts)
    if (rows % parts == 0) best = parts;
  return best;
}

class ByRows {
 public:
  ByRows(Graph& g, const RowTail& tail, std::vector<ValueId>* beside)
      : g_(g), tail_(tail), first_(static_cast<ValueId>(g.nodes.size())), beside_(beside) {}

  // The gradients of the exits; false when they depend on the product.
  bool seed(ValueId loss) {
    Differentiation head(g_, loss, tail_.exits);
    head.reverse().add(loss, head.reverse().build.scalar(1, g_[loss].type.element.scalar));
    seeds_.assign(tail_.exits.size(), -1);
    head.sweep(0, loss + 1, tail_.exits, &seeds_);
    std::vector<bool> depends = tail_.depends;
    depends.resize(g_.nodes.size());
    for (ValueId v = first_; v < std::ssize(g_.nodes); ++v)
      depends[v] = std::any_of(g_[v].operands.begin(), g_[v].operands.end(), [&](ValueId o) { return depends[o]; });
    return std::all_of(seeds_.begin(), seeds_.end(), [&](ValueId s) { return s >= 0 && !depends[s]; });
  }

  ValueId run(ValueId loss, int64_t parts, const std::vector<ValueId>& with_respect_to,
              std::vector<ValueId>* gradients) {
    Differentiation d(g_, loss, with_respect_to);
    const ValueId rows_begin = g_.nodes.size();
    RowCopy copy(g_, tail_);
    copy.flatten();
    const std::vector<ValueId> seeds = flat(d.reverse().build, seeds_);
    d.spread(rows_begin, g_.nodes.size());
    const std::vector<Exits> exits = backward(d, copy, rows_begin, parts, seeds);
    const ValueId total = head(loss, whole(d.reverse().build, exits));
    d.sweep(0, first_, with_respect_to, gradients);
    return total;
  }

  // Without gradients.
  ValueId run_forward(ValueId loss, int64_t parts) {
    Builder build(g_);
    RowCopy copy(g_, tail_);
    copy.flatten();
    std::vector<Exits> exits;
    for (int64_t part = 0; part < parts; ++part) exits.push_back(copy.part(part * count(parts), count(parts)));
    return head(loss, whole(build, exits));
  }

  // Like run, for seeds that depend on the product.
  ValueId run_twice(ValueId loss, int64_t parts, const std::vector<ValueId>& with_respect_to,
                    std::vector<ValueId>* gradients) {
    Differentiation d(g_, loss, with_respect_to);
    Builder& build = d.reverse().build;
    const ValueId rows_begin = g_.nodes.size();
    RowCopy copy(g_, tail_);
    copy.flatten();
    d.spread(rows_begin, g_.nodes.size());
    std::vector<Exits> exits;
    for (int64_t part = 0; part < parts; ++part) exits.push_back(copy.part(part * count(parts), count(parts)));
    const std::vector<ValueId> now = whole(build, exits);
    const ValueId total = head(loss, now);
    const ValueId head_end = g_.nodes.size();
    Differentiation behind(g_, total, now);
    behind.reverse().add(total, build.scalar(1, g_[total].type.element.scalar));
    std::vector<ValueId> seeds(now.size(), -1);
    behind.sweep(now.front(), head_end, now, &seeds);
    for (size_t k = 0; k < seeds.size(); ++k)
      if (seeds[k] < 0) seeds[k] = build.broadcast(build.scalar(0), Shape(g_[now[k]].type.shape));
    // The first pass is not differentiated: the number it waits for depends on no other value.
    const ValueId nothing = copy.nothing_of(total);
    const ValueId waits = g_.nodes.size();
    copy.wait_for(nothing);
    d.spread(waits, g_.nodes.size());
    (void)backward(d, copy, rows_begin, parts, flat(build, seeds));
    d.sweep(0, first_, with_respect_to, gradients);
    return total;
  }

 private:
  using Exits = std::vector<ValueId>;  // of one part
  int64_t count(int64_t parts) const { return tail_.rows / parts; }

  std::vector<ValueId> flat(Builder& build, const std::vector<ValueId>& seeds) const {
    std::vector<ValueId> out;
    for (size_t k = 0; k < seeds.size(); ++k)
      out.push_back(flatten_rows(build, seeds[k], Shape(g_[tail_.exits[k]].type.shape), tail_.rows));
    return out;
  }

  // Appends every part forward and backward, one after another, and the backward pass of rows that `copy` flattened
  // (from rows_begin on) and that depend on the inputs d differentiates for.
  std::vector<Exits> backward(Differentiation& d, RowCopy& copy, ValueId rows_begin, int64_t parts,
                              const std::vector<ValueId>& seeds) {
    Reverse& r = d.reverse();
    const ValueId rows_end = g_.nodes.size();
    std::vector<Exits> results;
    for (int64_t part = 0; part < parts; ++part) {
      const ValueId begin = g_.nodes.size();
      results.push_back(copy.part(part * count(parts), count(parts)));
      const ValueId end = g_.nodes.size();
      std::vector<ValueId> arriving;
      for (const ValueId seed : seeds) arriving.push_back(slice_rows(r.build, seed, part * count(parts), count(parts)));
      d.sweep_appended(begin, end, results.back(), results.back(), arriving);
      r.settle(rows_end);
    }
    d.sweep(rows_begin, rows_end, {}, nullptr);
    return results;
  }

  // The exits in their original shape, concatenated from their parts.
  std::vector<ValueId> whole(Builder& build, const std::vector<Exits>& parts) const {
    std::vector<ValueId> out;
    for (size_t k = 0; k < tail_.exits.size(); ++k) {
      std::vector<ValueId> pieces;
      for (const Exits& part : parts) pieces.push_back(part[k]);
      out.push_back(build.reshape(build.concat(pieces, 0), Shape(g_[tail_.exits[k]].type.shape)));
    }
    return out;
  }

  // A copy of the nodes after the exits that reads `exits` instead.
  ValueId head(ValueId loss, const std::vector<ValueId>& exits) {
    std::vector<ValueId> now(static_cast<size_t>(loss) + 1);
    for (ValueId v = 0; v <= loss; ++v) {
      now[v] = v;
      if (!tail_.depends[v] || tail_.contains[v]) continue;
      Node copy = g_[v];
      for (ValueId& o : copy.operands) {
        const auto exit = std::find(tail_.exits.begin(), tail_.exits.end(), o);
        o = exit != tail_.exits.end() ? exits[exit - tail_.exits.begin()] : now[o];
      }
      g_.nodes.push_back(std::move(copy));
      now[v] = g_.nodes.size() - 1;
    }
    if (beside_) {
      for (ValueId& v : *beside_) {
        const auto exit = std::find(tail_.exits.begin(), tail_.exits.end(), v);
        v = exit != tail_.exits.end() ? exits[exit - tail_.exits.begin()] : now[v];
      }
    }
    return now[loss];
  }

  Graph& g_;
  const RowTail& tail_;
  ValueId first_;               // of the appended nodes
  std::vector<ValueId> seeds_;  // gradients of the exits
  std::vector<ValueId>* beside_;
};

int64_t parts_for(const Graph& g, const RowTail& tail, int64_t most_bytes) {
  const int64_t bytes = byte_size(g[tail.product].type) * tail.rows_side.size();
  // If a row is wider than a part, a part is one row.
  const int64_t least = std::min(kLeastRows, std::max<int64_t>(1, most_bytes / (bytes / tail.rows)));
  return parts_of(tail.rows, bytes, most_bytes, least);
}

// Whether the loss depends on `with_respect_to` on a path outside the tail.
bool reaches_beside(const Graph& g, const RowTail& tail, ValueId loss, const std::vector<ValueId>& with_respect_to) {
  std::vector<bool> reached(g.nodes.size(), false);
  for (const ValueId v : with_respect_to) reached[v] = true;
  for (ValueId v = 0; v <= loss; ++v)
    for (const ValueId o : g[v].operands)
      reached[v] = reached[v] || (reached[o] && !tail.contains[o] && !tail.contains[v]);
  return reached[loss];
}

}  // namespace

std::vector<ValueId> differentiate_by_rows(Graph& g, ValueId& loss, const std::vector<ValueId>& with_respect_to,
                                           int64_t most_bytes, std::vector<ValueId>* beside) {
  check_loss(g, loss);
  if (beside)
    for (const ValueId v : *beside) LUMEN_CHECK(v <= loss, "an additional value is computed after the loss");
  const auto tail = find_row_tail(g, loss, most_bytes);
  if (!tail) return differentiate(g, loss, with_respect_to);
  const int64_t parts = parts_for(g, *tail, most_bytes);
  const size_t before = g.nodes.size();
  ByRows by_rows(g, *tail, beside);
  if (parts == 1 || reaches_beside(g, *tail, loss, with_respect_to)) return differentiate(g, loss, with_respect_to);
  std::vector<ValueId> gradients(with_respect_to.size(), -1);
  if (by_rows.seed(loss)) {
    loss = by_rows.run(loss, parts, with_respect_to, &gradients);
  } else {
    g.nodes.resize(before);
    loss = by_rows.run_twice(loss, parts, with_respect_to, &gradients);
  }
  Builder build(g);
  complete_gradients(build, with_respect_to, &gradients);
  return gradients;
}

std::vector<ValueId> gradients_of_loss(Graph& g, const std::vector<ValueId>& with_respect_to, int64_t most_bytes) {
  ValueId loss = g.results.at(0);
  std::vector<ValueId> metrics(g.results.begin() + 1, g.results.end());
  std::vector<ValueId> gradients = differentiate_by_rows(g, loss, with_respect_to, most_bytes, &metrics);
  g.results = {loss};
  g.results.insert(g.results.end(), metrics.begin(), metrics.end());
  g.result_names.resize(g.results.size());
  g.result_names[0] = "loss";
  return gradients;
}

void compute_by_rows(Graph& g, int64_t most_bytes) {
  const size_t before = g.nodes.size();
  Builder build(g);
  // A temporary node that all rows feed into: the tail ends before it.
  ValueId all = -1;
  for (const ValueId result : g.results) {
    if (g[result].type.element.format) return;
    std::vector<int> axes(g[result].type.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    const ValueId sum = axes.empty() ? result : build.reshape(build.reduce(result, Reduction::sum, axes), {});
    all = all < 0 ? build.add(sum, build.scalar(0)) : build.add(all, sum);
  }
  const auto tail = find_row_tail(g, all, most_bytes);
  const int64_t parts = tail ? parts_for(g, *tail, most_bytes) : 1;
  if (parts == 1) {
    g.nodes.resize(before);
    return;
  }
  (void)ByRows(g, *tail, &g.results).run_forward(all, parts);
}

}  // namespace lumen::graph
