#include "apps/diffuse/sites/sites.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "apps/diffuse/sites/polarity.h"
#include "apps/diffuse/sites/windows.h"
#include "apps/weighted_product/weighted_product.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// Columns [begin, end) of rows.
struct Columns {
  int64_t begin = 0, end = 0;
  friend auto operator<=>(const Columns&, const Columns&) = default;
};

// The columns a view reads of `source` [.., n]: the same columns of each row. nullopt otherwise.
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

// A map of a value v [.., n] that adds a bias, one number for each column, or converts the scalar type.
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
  // v reads all columns of `source`. False if a reader uses anything but a slice of columns.
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

// Widths of the parts that were concatenated along the last axis of x [.., k].
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

bool is_parameter_input(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter;
}

// The operand of a product that is such a parameter; -1: there is none.
int weight_side(const Graph& g, const Node& node) {
  if (node.op != Op::contract_) return -1;
  for (const int side : {1, 0}) {
    const std::string& of_weight = node.attributes.indices[side];
    if (!is_parameter_input(g, node.operands[side]) || of_weight.size() < 2) continue;
    ProductLetters letters = product_letters(node, side);
    std::string summed = of_weight.substr(1);
    std::ranges::sort(summed);
    std::ranges::sort(letters.columns);
    if (letters.groups.empty() && letters.outputs == of_weight.substr(0, 1) && letters.columns == summed) return side;
  }
  return -1;
}

ProductSite site_of(const Graph& g, const Users& users, const SiteProduct& at) {
  const Node& node = g[at.product];
  const Node& weight = g[node.operands[at.side]];
  const std::vector<std::string>& i = node.attributes.indices;
  ProductSite out;
  out.weight = weight.attributes.name;
  out.rows = weight.type.shape[0].number();
  out.columns = elements(weight.type.shape).number() / std::max<int64_t>(1, out.rows);
  for (size_t d = 1; d + 1 < weight.type.shape.size(); ++d) out.window.push_back(weight.type.shape[d].number());
  if (i[2].back() == i[at.side][0]) out.row_segments = CutFinder(g, users, out.rows).widths(at.product);
  const WindowedOperand x = windowed_operand(g, at);
  if (!x.are_channels_last) return out;
  if (out.row_segments.empty()) out.column_segments = joined_widths(g, x.source);
  for (int64_t& width : out.column_segments) width *= out.places();
  out.is_polar = is_polar(g, x.source);
  return out;
}

// Whether values depend on any data, beyond parameters and constants.
std::vector<bool> values_of_data(const Graph& g) {
  std::vector<bool> out(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    out[v] = g[v].op == Op::input_ ? !is_parameter_input(g, v)
                                   : std::ranges::any_of(g[v].operands, [&](ValueId o) { return out[o]; });
  return out;
}

std::string why_left(const Graph& g, const Node& product, int side) {
  const ProductLetters letters = product_letters(product, side);
  if (!letters.groups.empty()) return "its product is in groups";
  if (!is_parameter_input(g, product.operands[side])) return "its product reads a view of it";
  if (weight_side(g, product) == side) return "it is read otherwise, too";
  return "its first axis is not that of the result";
}

}  // namespace

int64_t ProductSite::places() const {
  return std::accumulate(window.begin(), window.end(), int64_t{1}, std::multiplies<>());
}

std::map<ValueId, std::vector<SiteProduct>> products_of_sites(const Graph& g) {
  std::map<ValueId, std::vector<SiteProduct>> out;
  std::map<ValueId, size_t> reads;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    for (const ValueId o : g[v].operands) ++reads[o];
    if (const int side = weight_side(g, g[v]); side >= 0) out[g[v].operands[side]].push_back({v, side});
  }
  for (const ValueId v : g.results) ++reads[v];
  std::erase_if(out, [&](const auto& one) { return reads[one.first] != one.second.size(); });
  return out;
}

std::vector<ProductSite> product_sites(Graph g) {
  inline_calls(g);
  simplify(g);
  const Users users = users_of(g);
  std::map<ValueId, ProductSite> by_product;
  for (const auto& [weight, products] : products_of_sites(g)) {
    ProductSite& out = by_product[products[0].product] = site_of(g, users, products[0]);
    // Keep the properties that all products with one weight share.
    for (const SiteProduct& other : std::span(products).subspan(1)) {
      const ProductSite site = site_of(g, users, other);
      if (out.row_segments != site.row_segments) out.row_segments.clear();
      if (out.column_segments != site.column_segments) out.column_segments.clear();
      out.is_polar = out.is_polar && site.is_polar;
    }
  }
  std::vector<ProductSite> out;
  for (auto& [product, site] : by_product) out.push_back(std::move(site));
  return out;
}

std::vector<LeftWeight> left_weights(Graph g) {
  inline_calls(g);
  simplify(g);
  const std::map<ValueId, std::vector<SiteProduct>> sites = products_of_sites(g);
  const std::vector<bool> of_data = values_of_data(g);
  std::vector<LeftWeight> out;
  std::set<ValueId> known;
  for (const Node& node : g.nodes) {
    if (!is_product(node.op)) continue;
    for (const int side : {1, 0}) {
      const ValueId weight = read_below(g, node.operands[side]);
      if (weight < 0 || !is_parameter_input(g, weight) || sites.contains(weight)) continue;
      if (!of_data[node.operands[1 - side]] || !known.insert(weight).second) continue;
      out.push_back({g[weight].attributes.name, why_left(g, node, side)});
    }
  }
  return out;
}

}  // namespace lumen::graph
