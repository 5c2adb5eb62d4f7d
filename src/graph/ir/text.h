// The text form of graphs, used in tests. parse(print(g)) == g, and print(parse(t)) == t for canonical t.
//
//   graph main(%x: data tensor<BxTxi32>, %w: parameter tensor<65x32xf32>) {
//     %2 = gather %w, %x : tensor<BxTx32xf32>
//     %3 = contract %2, %w (btk,nk->btn) : tensor<BxTx65xf32>
//     return logits = %3
//   }
#pragma once

#include <functional>

#include "base/place.h"
#include "graph/ir/graph.h"

namespace lumen::graph {

std::string print(const Graph& g);

// `formats` resolves element names that are not scalar types; may return null.
using FormatLookup = std::function<FormatRef(std::string_view)>;
std::vector<std::shared_ptr<Graph>> parse(SourceRef source, const FormatLookup& formats);  // callees first, main last

}  // namespace lumen::graph
