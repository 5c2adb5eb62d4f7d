#include "apps/diffuse/sites/read_values.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "apps/diffuse/sites/sites.h"
#include "graph/ir/build.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// The operand with its columns last, as consecutive rows: appended to the graph.
ValueId rows_apart(Builder& build, const Node& product, int side, ReadRows& where) {
  const std::string &of_x = product.attributes.indices[1 - side], &of_weight = product.attributes.indices[side];
  std::vector<int> order;
  for (size_t d = 0; d < of_x.size(); ++d)
    if (of_weight.find(of_x[d]) == std::string::npos) order.push_back(d);
  for (const char c : of_weight.substr(1)) order.push_back(of_x.find(c));
  const ValueId moved = build.permute(product.operands[1 - side], order);
  const int64_t columns = elements(build.type(product.operands[side]).shape).number() /
                          build.type(product.operands[side]).shape[0].number();
  const int64_t rows = elements(build.type(moved).shape).number() / columns;
  where = {0, {rows}, {columns}, {columns}, {1}};
  return build.reshape(moved, {Dim(rows), Dim(columns)});
}

// The image that a convolution reads, if its windows can be located in it; else -1.
ValueId image_read(const Graph& g, const Node& product, int side, ReadRows& where) {
  const std::string &of_x = product.attributes.indices[1 - side], &of_weight = product.attributes.indices[side];
  const ValueId x = product.operands[1 - side];
  const std::optional<Access> access = of_weight.size() > 2 ? affine_access(g, x) : std::nullopt;
  if (!access || !is_compute(g, access->source)) return -1;
  where.offset = access->offset;
  const std::vector<int64_t> extents = extents_of(g[x].type.shape);
  for (size_t d = 0; d < of_x.size(); ++d) {
    if (of_weight.find(of_x[d]) != std::string::npos) continue;
    where.row_extents.push_back(extents[d]);
    where.row_strides.push_back(access->strides[d]);
  }
  for (const char c : of_weight.substr(1)) {
    where.column_extents.push_back(extents[of_x.find(c)]);
    where.column_strides.push_back(access->strides[of_x.find(c)]);
  }
  return access->source;
}

}  // namespace

int64_t ReadRows::count() const {
  return std::accumulate(row_extents.begin(), row_extents.end(), int64_t{1}, std::multiplies<>());
}

int64_t ReadRows::first_of(int64_t row) const {
  int64_t out = offset;
  for (size_t d = row_extents.size(); d-- > 0; row /= row_extents[d]) out += row % row_extents[d] * row_strides[d];
  return out;
}

std::vector<int64_t> ReadRows::column_steps() const {
  std::vector<int64_t> out = {0};
  for (size_t d = 0; d < column_extents.size(); ++d) {
    std::vector<int64_t> more;
    for (const int64_t step : out)
      for (int64_t k = 0; k < column_extents[d]; ++k) more.push_back(step + k * column_strides[d]);
    out = std::move(more);
  }
  return out;
}

std::string read_value(const std::string& weight, size_t product) {
  return weight + ".read" + (product > 0 ? "." + std::to_string(product) : "");
}

HandedReads hand_back_reads(Graph g, const std::vector<std::string>& weights) {
  inline_calls(g);
  simplify(g);
  const std::map<ValueId, std::vector<SiteProduct>> sites = products_of_sites(g);
  HandedReads out;
  Builder build(g);
  for (const std::string& weight : weights) {
    const auto found = sites.find(g.find_input(weight));
    if (found == sites.end()) continue;
    std::vector<ReadRows>& rows = out.rows[weight];
    for (const SiteProduct& at : found->second) {
      const Node product = g[at.product];
      ValueId read = image_read(g, product, at.side, rows.emplace_back());
      if (read < 0) read = rows_apart(build, product, at.side, rows.back());
      g.results.push_back(read);
      g.result_names.push_back(read_value(weight, rows.size() - 1));
    }
  }
  simplify(g);
  out.graph = std::move(g);
  return out;
}

}  // namespace lumen::graph
