#include "graph/match/codes.h"

#include <algorithm>

#include "graph/match/access.h"
#include "number/facts/record_fit.h"

namespace lumen::graph {

std::optional<ByteCast> byte_cast(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (node.op != Op::cast_ || !node.type.element.format || node.type.shape.empty()) return std::nullopt;
  if (!byte_code(*node.type.element.format)) return std::nullopt;
  const auto access = affine_access(g, node.operands[0]);
  if (!access || access->offset != 0) return std::nullopt;
  const Shape &from = g[access->source].type.shape, &to = node.type.shape;
  if (elements(from) != elements(to) || elements(to) == Dim(0)) return std::nullopt;
  ByteCast out{access->source, false, elements(to).number() / to.back().number(), to.back().number()};
  if (access->strides == dense_strides_of(extents_of(to))) return out;
  // Transposed: the last axes of the source are the columns, and the first axis here.
  if (to.size() != 2 || access->strides != std::vector<int64_t>{1, to[0].number()}) return std::nullopt;
  int64_t columns = 1;
  for (size_t d = from.size(); d > 0 && columns < to[0].number(); --d) columns *= from[d - 1].number();
  if (columns != to[0].number() || to[0].number() <= 1 || to[1].number() <= 1) return std::nullopt;
  out.transposed = true;
  return out;
}

int64_t fitted_square(const Graph& g, ValueId v) {
  const auto cast = byte_cast(g, v);
  if (!cast || g[v].operands.size() != 1 || !g[v].attributes.sources.empty()) return 0;
  const Format& f = *g[v].type.element.format;
  const std::vector<int> fields = byte_code(f)->fields;
  const auto of_tiles = [&](int field) { return f.fields[field].level == Level::tile; };
  if (fields.empty() || !std::ranges::all_of(fields, of_tiles) || !record_fit(f, Level::tile)) return 0;
  const int64_t side = f.tile_columns;
  const bool divides = cast->rows % side == 0 && cast->columns % side == 0;
  return side > 1 && divides && (f.tile_rows == 1 || f.tile_rows == side) ? side : 0;
}

std::optional<ByteCast> encodable_cast(const Graph& g, ValueId v) {
  const auto cast = byte_cast(g, v);
  if (!cast || fitted_square(g, v) > 0) return cast;
  if (g[v].operands.size() != byte_code(*g[v].type.element.format)->fields.size() + 1) return std::nullopt;
  return cast;
}

}  // namespace lumen::graph
