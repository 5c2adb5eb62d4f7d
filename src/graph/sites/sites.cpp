#include "graph/sites/sites.h"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "graph/sites/polarity.h"

namespace lumen::graph {
namespace {

// Columns [begin, end) of rows.
struct Columns {
  int64_t begin = 0, end = 0;
  friend auto operator<=>(const Columns&, const Columns&) = default;
};

// What a view reads of `source` [.., n]: the same columns of each row it reads. Nothing where it is not so.
std::optional<Columns> columns_read(const Graph& g, ValueId view, ValueId source, int64_t n) {
  const std::optional<Access> access = affine_access(g, view, {source});
  if (!access || access->source != source) return std::nullopt;
  const std::vector<int64_t> extents = extents_of(g[view].type.shape);
  Columns out{access->offset % n, access->offset % n + 1};
  int64_t count = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t stride = access->strides[d];
    if (extents[d] == 1 || stride % n == 0) continue;
    if (stride == 1 && extents[d] % n == 0 && out.begin == 0) return Columns{0, n};  // whole rows
    out.end += (extents[d] - 1) * stride;
    count *= extents[d];
  }
  if (out.end > n || count != out.end - out.begin) return std::nullopt;
  return out;
}

// A map that adds a bias, one number for each column, or changes the scalar type; of such a value v [.., n].
bool keeps_columns(const Graph& g, ValueId map, ValueId v) {
  const Node& node = g[map];
  if (node.op != Op::map_ || node.type.shape != g[v].type.shape) return false;
  for (const ValueId o : node.operands) {
    const Shape& shape = g[o].type.shape;
    if (o != v && elements(shape) != (shape.empty() ? Dim(1) : shape.back())) return false;
  }
  return std::ranges::all_of(node.attributes.formula.nodes, [](const ScalarNode& n) {
    return n.op == ScalarOp::input || n.op == ScalarOp::constant || n.op == ScalarOp::add_ || n.op == ScalarOp::cast_;
  });
}

class CutFinder {
 public:
  CutFinder(const Graph& g, const Users& users, int64_t n) : g_(g), users_(users), n_(n) {}

  std::vector<int64_t> widths(ValueId product) {
    if (!follow(product, product)) return {};
    std::ranges::sort(cuts_);
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    std::vector<int64_t> out;
    int64_t at = 0;
    for (const Columns& c : cuts_) {
      if (c.begin != at) return {};
      out.push_back(c.end - c.begin);
      at = c.end;
    }
    return at == n_ ? out : std::vector<int64_t>();
  }

 private:
  // v reads all columns of `source`. False where anything reads what is no slice of columns.
  bool follow(ValueId source, ValueId v) {
    return std::ranges::all_of(users_[v], [&](ValueId u) {
      if (u < 0) return false;
      if (is_view(g_[u].op)) {
        const std::optional<Columns> read = columns_read(g_, u, source, n_);
        if (!read) return false;
        if (*read == Columns{0, n_}) return follow(source, u);
        cuts_.push_back(*read);
        return true;
      }
      const bool is_last = !g_[v].type.shape.empty() && g_[v].type.shape.back() == Dim(n_);
      return is_last && keeps_columns(g_, u, v) && follow(u, u);
    });
  }

  const Graph& g_;
  const Users& users_;
  int64_t n_;
  std::vector<Columns> cuts_;
};

bool is_convert(const Node& node) {
  return node.op == Op::map_ && node.operands.size() == 1 &&
         std::ranges::all_of(node.attributes.formula.nodes,
                             [](const ScalarNode& n) { return n.op == ScalarOp::input || n.op == ScalarOp::cast_; });
}

// Widths of what was put together along the last axis to x [.., k].
std::vector<int64_t> joined_widths(const Graph& g, ValueId x) {
  const Dim k = g[x].type.shape.back();
  for (;;) {
    const Node& node = g[x];
    const ValueId below = node.operands.empty() ? -1 : node.operands[0];
    if (is_convert(node)) {
      x = below;
    } else if (node.op == Op::concat_) {
      if (std::cmp_not_equal(node.attributes.axis + 1, node.type.shape.size())) return {};
      std::vector<int64_t> out;
      for (const ValueId part : node.operands) out.push_back(g[part].type.shape.back().number());
      return out;
    } else if (node.op == Op::reshape_) {
      const Shape& from = g[below].type.shape;
      if (from.empty()) return {};
      if (from.back() == k) {
        x = below;
        continue;
      }
      if (from.size() < 2 || from.back() == Dim(1) || from[from.size() - 2] * from.back() != k) return {};
      return std::vector<int64_t>(from[from.size() - 2].number(), from.back().number());
    } else {
      return {};
    }
  }
}

bool is_weight_matrix(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && g[v].type.shape.size() == 2;
}

ProductSite site_of(const Graph& g, const Users& users, ValueId product, int side) {
  const Node& node = g[product];
  const Node& weight = g[node.operands[side]];
  const std::vector<std::string>& i = node.attributes.indices;
  ProductSite out;
  out.weight = weight.attributes.name;
  out.rows = weight.type.shape[0].number();
  out.columns = weight.type.shape[1].number();
  const ValueId x = node.operands[1 - side];
  if (i[2].back() == i[side][0]) out.row_segments = CutFinder(g, users, out.rows).widths(product);
  if (i[1 - side].back() != i[side][1]) return out;
  if (out.row_segments.empty()) out.column_segments = joined_widths(g, x);
  out.is_polar = is_polar(g, x);
  return out;
}

}  // namespace

int product_side(const Graph& g, ValueId v) {
  if (g[v].op != Op::contract_) return -1;
  for (const int side : {1, 0})
    if (is_weight_matrix(g, g[v].operands[side]) && reads_columns_of(g[v], side)) return side;
  return -1;
}

std::vector<ProductSite> product_sites(Graph g) {
  inline_calls(g);
  simplify(g);
  const Users users = users_of(g);
  std::vector<ProductSite> out;
  std::map<std::string, size_t> known;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const int side = product_side(g, v);
    if (side < 0) continue;
    const ProductSite site = site_of(g, users, v, side);
    const auto [at, is_new] = known.try_emplace(site.weight, out.size());
    if (is_new) {
      out.push_back(site);
      continue;
    }
    // What all products with one weight have.
    ProductSite& before = out[at->second];
    if (before.row_segments != site.row_segments) before.row_segments.clear();
    if (before.column_segments != site.column_segments) before.column_segments.clear();
    before.is_polar = before.is_polar && site.is_polar;
  }
  return out;
}

}  // namespace lumen::graph
