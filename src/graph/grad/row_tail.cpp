// See row_tail.h.
#include "graph/grad/row_tail.h"

#include <algorithm>

#include "base/check.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

constexpr int64_t kMostNumbers = 16;  // of a row after the tail

int64_t count(const Shape& s) {
  return elements(s).number();
}

bool same_axes(const Shape& a, const Shape& b, int axes) {
  return std::ssize(a) >= axes && std::equal(a.begin(), a.begin() + axes, b.begin());
}

// Right-aligned with `shape`, the operand has extent 1 or no axis at the first `axes` axes.
bool is_free_of(const Shape& operand, const Shape& shape, int axes) {
  const int shift = shape.size() - operand.size();
  for (int d = shift; d < axes; ++d)
    if (operand[d - shift] != Dim(1)) return false;
  return true;
}

class Finder {
 public:
  Finder(const Graph& g, ValueId product) : g_(g) {
    tail_.product = product;
    tail_.contains.assign(g.nodes.size(), false);
    tail_.depends.assign(g.nodes.size(), false);
  }

  std::optional<RowTail> find(ValueId loss) {
    if (!enter()) return {};
    for (ValueId v = tail_.product + 1; v <= loss; ++v) {
      const auto& operands = g_[v].operands;
      tail_.depends[v] = std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return tail_.depends[o]; });
      if (!tail_.depends[v]) continue;
      tail_.contains[v] = std::all_of(operands.begin(), operands.end(),
                                      [&](ValueId o) { return !tail_.depends[o] || tail_.contains[o]; }) &&
                          follows(v);
      if (tail_.contains[v]) {
        tail_.nodes.push_back(v);
        continue;
      }
      for (ValueId o : operands)
        if (tail_.contains[o] && std::find(tail_.exits.begin(), tail_.exits.end(), o) == tail_.exits.end())
          tail_.exits.push_back(o);
    }
    for (ValueId e : tail_.exits)
      if (count(g_[e].type.shape) > kMostNumbers * tail_.rows) return {};
    if (tail_.exits.empty() || tail_.contains[loss]) return {};
    for (ValueId v : std::vector<ValueId>(tail_.nodes)) pull(v);
    std::sort(tail_.nodes.begin(), tail_.nodes.end());
    return std::move(tail_);
  }

 private:
  bool enter() {
    const auto entered = rows_of(tail_.product);
    if (!entered) return false;
    tail_.rows = entered->rows;
    tail_.rows_side[tail_.product] = entered->side;
    tail_.nodes = {tail_.product};
    tail_.depends[tail_.product] = tail_.contains[tail_.product] = true;
    return true;
  }

  // The rows are leading axes of one operand of a product and of its result, in the same order.
  struct Rows {
    int side = 0;
    int64_t rows = 1;
  };
  std::optional<Rows> rows_of(ValueId product) const {
    const Node& node = g_[product];
    const std::string& result = node.attributes.indices[2];
    const auto leading = [&](int side) {
      const std::string &own = node.attributes.indices[side], &other = node.attributes.indices[1 - side];
      size_t n = 0;
      while (n < result.size() && n < own.size() && result[n] == own[n] && other.find(result[n]) == std::string::npos)
        ++n;
      return n;
    };
    Rows found;
    found.side = leading(0) > 0 ? 0 : 1;
    const size_t n = leading(found.side);
    if (n == 0 || n == result.size()) return {};
    for (size_t d = 0; d < n; ++d) found.rows *= node.type.shape[d].number();
    if (row_axes(node.type.shape, found.rows) != static_cast<int>(n)) return {};
    return found;
  }

  // Wide maps that do not depend on the product, and row-wise values of other wide products, are computed with the rows
  // that read them.
  void pull(ValueId user) {
    if (g_[user].op == Op::contract_) return;
    for (ValueId o : g_[user].operands) {
      const bool wide_map = g_[o].op == Op::map_ && count(g_[o].type.shape) > kMostNumbers * tail_.rows && follows(o);
      if (tail_.contains[o] || tail_.depends[o] || (!wide_map && !is_over_product(o))) continue;
      tail_.contains[o] = true;
      tail_.nodes.push_back(o);
      if (g_[o].op == Op::contract_) tail_.rows_side[o] = rows_of(o)->side;
      pull(o);
    }
  }

  // Another product over the same rows, as wide as the first, or a row-wise value that depends on one.
  bool is_over_product(ValueId v) {
    const auto [known, fresh] = over_product_.emplace(v, false);
    if (!fresh) return known->second;
    const Node& node = g_[v];
    bool is = false;
    if (node.op == Op::contract_) {
      const auto rows = rows_of(v);
      is = rows && rows->rows == tail_.rows && count(node.type.shape) >= count(g_[tail_.product].type.shape);
    } else if (node.op == Op::map_ || node.op == Op::reduce_ || node.op == Op::reshape_) {
      is = follows(v) &&
           std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId o) { return is_over_product(o); });
    }
    return over_product_[v] = is;
  }

  bool follows(ValueId v) const {
    const Node& node = g_[v];
    const int axes = row_axes(node.type.shape, tail_.rows);
    if (axes < 0 || node.type.element.format) return false;
    if (node.op == Op::map_)
      return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
        const Shape& s = g_[o].type.shape;
        const bool whole = s.size() == node.type.shape.size() && same_axes(s, node.type.shape, axes);
        return whole || (!tail_.depends[o] && is_free_of(s, node.type.shape, axes));
      });
    const Shape& from = g_[node.operands[0]].type.shape;
    if (node.op == Op::reduce_)
      return row_axes(from, tail_.rows) == axes && std::all_of(node.attributes.axes.begin(), node.attributes.axes.end(),
                                                               [&](int axis) { return axis >= axes; });
    return node.op == Op::reshape_;
  }

  const Graph& g_;
  RowTail tail_;
  std::map<ValueId, bool> over_product_;
};

}  // namespace

int row_axes(const Shape& shape, int64_t rows) {
  int64_t all = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    all *= shape[d].number();
    if (all == rows) return d + 1;
  }
  return -1;
}

std::optional<RowTail> find_row_tail(const Graph& g, ValueId loss, int64_t least_bytes) {
  std::vector<ValueId> wide;
  for (ValueId v = 0; v <= loss; ++v) {
    const Node& node = g[v];
    const bool numeric =
        std::all_of(node.type.shape.begin(), node.type.shape.end(), [](const Dim& d) { return d.is_number(); });
    if (!numeric || node.op == Op::call_) return {};
    if (node.op == Op::contract_ && byte_size(node.type) > least_bytes) wide.push_back(v);
  }
  std::stable_sort(wide.begin(), wide.end(),
                   [&](ValueId a, ValueId b) { return byte_size(g[a].type) > byte_size(g[b].type); });
  for (ValueId v : wide)
    if (auto tail = Finder(g, v).find(loss)) return tail;
  return {};
}

RowCopy::RowCopy(Graph& g, const RowTail& tail)
    : build_(g), tail_(tail), flat_(g.nodes.size(), -1), now_(g.nodes.size(), -1) {}

ValueId flatten_rows(Builder& build, ValueId v, const Shape& like, int64_t rows) {
  Shape flat{rows};
  flat.insert(flat.end(), like.begin() + row_axes(like, rows), like.end());
  return build.type(v).shape == flat ? v : build.reshape(v, flat);
}

ValueId slice_rows(Builder& build, ValueId v, int64_t first, int64_t count) {
  Shape part = build.type(v).shape;
  std::vector<int64_t> starts(part.size(), 0);
  starts[0] = first;
  part[0] = count;
  return build.slice(v, starts, part);
}

void RowCopy::flatten() {
  const auto need = [&](ValueId v) {
    if (!tail_.contains[v] && flat_[v] < 0) flat_[v] = flatten_rows(build_, v, Shape(build_.type(v).shape), tail_.rows);
  };
  for (const auto& [product, side] : tail_.rows_side) need(build_.graph[product].operands[side]);
  for (ValueId v : tail_.nodes) {
    const Node node = build_.graph[v];
    if (node.op != Op::map_) continue;
    const int axes = row_axes(node.type.shape, tail_.rows);
    for (ValueId o : node.operands)
      if (!is_free_of(build_.type(o).shape, node.type.shape, axes)) need(o);
  }
}

ValueId RowCopy::nothing_of(ValueId number) {
  return build_.mul(number, build_.scalar(0, build_.type(number).element.scalar));
}

void RowCopy::wait_for(ValueId nothing) {
  for (const auto& [product, side] : tail_.rows_side) {
    const ValueId rows = build_.graph[product].operands[side];
    if (flat_[rows] >= 0) flat_[rows] = build_.add(flat_[rows], nothing);
  }
}

ValueId RowCopy::operand(ValueId v, const Node& user, int64_t first, int64_t count) {
  if (now_[v] >= 0) return now_[v];
  if (flat_[v] >= 0) return now_[v] = slice_rows(build_, flat_[v], first, count);
  // Independent of rows: drop the row axes.
  const Shape s = build_.type(v).shape;
  const size_t rest = user.type.shape.size() - row_axes(user.type.shape, tail_.rows);
  if (s.size() <= rest) return v;
  return build_.reshape(v, {s.end() - rest, s.end()});
}

std::vector<ValueId> RowCopy::part(int64_t first, int64_t count) {
  std::fill(now_.begin(), now_.end(), -1);
  for (ValueId v : tail_.nodes) {
    const Node node = build_.graph[v];
    const int axes = row_axes(node.type.shape, tail_.rows);
    if (node.op == Op::contract_) {
      std::vector<std::string> i = node.attributes.indices;
      ValueId sides[2] = {node.operands[0], node.operands[1]};
      const size_t side = tail_.rows_side.at(v);
      sides[side] = operand(sides[side], node, first, count);
      i[side].erase(1, static_cast<size_t>(axes) - 1);
      i[2].erase(1, static_cast<size_t>(axes) - 1);
      now_[v] = build_.contract(sides[0], sides[1], i[0], i[1], i[2]);
    } else if (node.op == Op::map_) {
      std::vector<ValueId> operands;
      for (ValueId o : node.operands) operands.push_back(operand(o, node, first, count));
      now_[v] = build_.map(node.attributes.formula, operands);
    } else if (node.op == Op::reduce_) {
      std::vector<int> over = node.attributes.axes;
      for (int& axis : over) axis -= axes - 1;
      now_[v] = build_.reduce(now_[node.operands[0]], node.attributes.reduction, over);
    } else {
      LUMEN_CHECK(node.op == Op::reshape_);
      Shape shape{count};
      shape.insert(shape.end(), node.type.shape.begin() + axes, node.type.shape.end());
      now_[v] = build_.reshape(now_[node.operands[0]], shape);
    }
    build_.graph[now_[v]].label = node.label;
  }
  std::vector<ValueId> exits;
  for (ValueId e : tail_.exits) exits.push_back(now_[e]);
  return exits;
}

}  // namespace lumen::graph
