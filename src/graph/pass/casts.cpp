// convert_casts: a cast between scalars becomes a map, so that groups have one kind of elementwise operation. Casts
// into and out of formats stay; those into formats of blocks read 16-bit floats directly, instead of their f32
// conversion. Proved by tests/graph/pass/convert_casts.txt.
#include <optional>

#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

bool is_short(const Element& e) {
  return !e.format && is_float(e.scalar) && scalar_bits(e.scalar) == 16;
}

// The 16-bit floats that v is a conversion of, in its shape; nullopt if it is none.
std::optional<ValueId> short_source(Rewriter& r, ValueId v) {
  const Node& node = r.from[v];
  if (node.op == Op::cast_ && node.type.element == Element{})
    return is_short(r.from[node.operands[0]].type.element) ? std::optional(r[node.operands[0]]) : std::nullopt;
  if (node.op != Op::permute_ && node.op != Op::reshape_) return std::nullopt;
  const auto source = short_source(r, node.operands[0]);
  if (!source) return std::nullopt;
  return node.op == Op::permute_ ? r.build.permute(*source, node.attributes.axes)
                                 : r.build.reshape(*source, node.type.shape);
}

bool is_into_blocks(const Node& node) {
  return node.op == Op::cast_ && node.type.element.format && node.type.element.format->block > 1 &&
         node.operands.size() == 1;
}

}  // namespace

void convert_casts(Graph& g) {
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (is_into_blocks(node)) {
      if (const auto source = short_source(r, node.operands[0])) {
        r.replace(v, r.build.cast(*source, node.type.element));
        r.keep_label(v);
        continue;
      }
    }
    if (node.op != Op::cast_ || node.type.element.format || is_unpack(g, v)) {
      r.keep(v);
      continue;
    }
    r.replace(v, r.build.convert(r[node.operands[0]], node.type.element.scalar));
    r.keep_label(v);
  }
  g = r.finish();
}

}  // namespace lumen::graph
