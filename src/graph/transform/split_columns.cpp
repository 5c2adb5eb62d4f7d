#include "graph/transform/split_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

bool is_matrix(const Graph& g, ValueId v) {
  const size_t axes = g[v].type.shape.size();
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && (axes == 2 || axes == 3);
}

// The operands of a product that sums over a weight's last axis; nullopt for other readers.
struct Reading {
  int side = 1;     // the weight's operand
  ValueId x = -1;   // the other
  size_t axis = 0;  // of x, that is summed
};
std::optional<Reading> reading_of(const Graph& g, ValueId product, ValueId weight) {
  const Node& node = g[product];
  const std::vector<std::string>& i = node.attributes.indices;
  if (node.op != Op::contract_ && node.op != Op::contract_gather_) return std::nullopt;
  if (std::ranges::count(node.operands, weight) != 1) return std::nullopt;
  for (const int side : {1, 0}) {
    if (node.operands[side] != weight || (node.op == Op::contract_gather_ && side == 0)) continue;
    if (!reads_columns_of(node, side)) return std::nullopt;
    return Reading{side, node.operands[1 - side], i[1 - side].find(i[side].back())};
  }
  return std::nullopt;
}

class Splitter {
 public:
  Splitter(const Graph& g, const std::vector<ColumnSplit>& splits) : r_(g) {
    const Users users = users_of(g);
    for (const ColumnSplit& s : splits) {
      const ValueId v = g.find_input(s.weight);
      if (v < 0) continue;
      check(users, v, s);
      LUMEN_CHECK(!splits_.contains(v), "'{}' is split twice", s.weight);
      splits_[v] = {&s, {}};
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (const auto split = splits_.find(v); split != splits_.end()) {
        add_parts(v, split->second);
        continue;
      }
      const Node& node = r_.from[v];
      const Parts* parts = nullptr;
      Reading reading;
      for (const ValueId o : node.operands)
        if (const auto split = splits_.find(o); split != splits_.end()) {
          parts = &split->second;
          reading = *reading_of(r_.from, v, o);
        }
      if (parts)
        r_.replace(v, sum(v, *parts, reading));
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  struct Parts {
    const ColumnSplit* what = nullptr;
    std::vector<ValueId> weights;
  };

  void check(const Users& users, ValueId v, const ColumnSplit& s) const {
    const Graph& g = r_.from;
    if (!is_matrix(g, v)) throw user_error("'{}' is no matrix whose columns could be split", s.weight);
    check_part_sizes(s.weight, s.columns, g[v].type.shape.back().number(), "columns");
    for (const ValueId user : users[v])
      if (user < 0 || !reading_of(g, user, v))
        throw user_error("the columns of '{}' cannot be split: it is read by more than products along them", s.weight);
  }

  // Appended in place of the weight, so that inputs precede their readers.
  void add_parts(ValueId v, Parts& parts) {
    Shape shape = r_.from[v].type.shape;
    for (size_t i = 0; i < parts.what->columns.size(); ++i) {
      shape.back() = Dim(parts.what->columns[i]);
      Type type = r_.from[v].type;
      type.shape = shape;
      parts.weights.push_back(r_.build.input(column_part(parts.what->weight, i), Role::parameter, type));
    }
    if (const std::string& order = parts.what->order; !order.empty() && !orders_.contains(order)) {
      int64_t columns = 0;
      for (const int64_t n : parts.what->columns) columns += n;
      const ValueId in = r_.build.input(order, Role::parameter, {{Dim(columns)}, {}});
      orders_[order] = r_.build.convert(in, Scalar::i32);
    }
  }

  // x in the columns' order of the parts.
  ValueId ordered(ValueId x, size_t axis, const std::string& order) {
    if (order.empty()) return r_[x];
    const auto [known, fresh] = ordered_.try_emplace({x, axis, order}, -1);
    if (!fresh) return known->second;
    std::vector<int> first, back;
    first.push_back(axis);
    const size_t axes = r_.from[x].type.shape.size();
    for (size_t d = 0; d < axes; ++d)
      if (d != axis) first.push_back(d);
    for (size_t d = 0; d < axes; ++d) back.push_back(std::ranges::find(first, d) - first.begin());
    const bool is_first = axis == 0;
    const ValueId table = is_first ? r_[x] : r_.build.permute(r_[x], first);
    ValueId y = r_.build.gather(table, orders_.at(order));
    if (!is_first) y = r_.build.permute(y, back);
    r_.to[y].label = r_.from[x].label.empty() ? "" : r_.from[x].label + ".ordered";
    return known->second = y;
  }

  ValueId sum(ValueId v, const Parts& parts, const Reading& reading) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const ValueId x = ordered(reading.x, reading.axis, parts.what->order);
    const Shape shape = r_.build.type(x).shape;
    std::vector<int64_t> starts(shape.size(), 0);
    ValueId all = -1;
    for (size_t k = 0; k < parts.weights.size(); ++k) {
      Shape some = shape;
      some[reading.axis] = Dim(parts.what->columns[k]);
      const ValueId slice = r_.build.slice(x, starts, some), w = parts.weights[k];
      starts[reading.axis] += parts.what->columns[k];
      const ValueId one =
          node.op == Op::contract_gather_
              ? r_.build.contract_gather(slice, w, r_[node.operands[2]], i[0], i[1], i[2])
              : r_.build.contract(reading.side == 0 ? w : slice, reading.side == 0 ? slice : w, i[0], i[1], i[2]);
      all = all < 0 ? one : r_.build.add(all, one);
    }
    LUMEN_CHECK(r_.build.type(all).shape == node.type.shape, "the sum of the parts of '{}' has another shape",
                parts.what->weight);
    r_.to[all].label = node.label;
    return all;
  }

  Rewriter r_;
  std::map<ValueId, Parts> splits_;
  std::map<std::string, ValueId> orders_;  // as integers
  std::map<std::tuple<ValueId, size_t, std::string>, ValueId> ordered_;
};

}  // namespace

void check_part_sizes(std::string_view weight, const std::vector<int64_t>& sizes, int64_t all, std::string_view unit) {
  int64_t sum = 0;
  for (const int64_t n : sizes) {
    if (n < 1 || n > all) throw user_error("'{}' has {} {}, of which no part can have {}", weight, all, unit, n);
    sum += n;
  }
  if (sizes.size() < 2 || sum != all)
    throw user_error("the {} parts of '{}' have {} {}, but it has {}", sizes.size(), weight, sum, unit, all);
}

std::string column_part(const std::string& weight, size_t i) {
  return fmt::format("{}.{}", weight, i);
}

Graph split_columns(Graph g, const std::vector<ColumnSplit>& splits) {
  if (splits.empty()) return g;
  inline_calls(g);
  simplify(g);
  return Splitter(g, splits).run();
}

std::vector<SharedColumns> splittable_weights(Graph g) {
  inline_calls(g);
  simplify(g);
  const Users users = users_of(g);
  std::vector<SharedColumns> out;
  std::map<std::set<std::pair<ValueId, size_t>>, size_t> known;  // by the value read
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (!is_matrix(g, v) || users[v].empty()) continue;
    std::set<std::pair<ValueId, size_t>> reads;
    bool fits = true;
    for (const ValueId user : users[v]) {
      const std::optional<Reading> reading = user < 0 ? std::nullopt : reading_of(g, user, v);
      fits = fits && reading;
      if (reading) reads.emplace(reading->x, reading->axis);
    }
    if (!fits) continue;
    const auto [found, fresh] = known.emplace(reads, out.size());
    if (fresh) out.push_back({{}, g[v].type.shape.back().number()});
    out[found->second].weights.push_back(g[v].attributes.name);
  }
  return out;
}

}  // namespace lumen::graph
