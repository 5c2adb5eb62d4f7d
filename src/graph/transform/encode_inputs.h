// encode_inputs: what products with named weights read passes through a number format first, as it would be held in
// memory: activations of few bits. Fields of the format are fitted while the graph runs (dynamic: a row's, a block's,
// whatever the format's text says), or its scale is a constant that a calibration found (static). Products that read
// the same value in the same format read one encoding. encode_states: the same of what a step puts into its caches,
// under a scale for each layer; they hold that format's numbers then, whatever they are stored in. Functions without
// caches (losses) encode what their attentions read as keys and values. Proved by
// tests/graph/transform/encode_inputs_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct EncodedInput {
  std::string weight;  // a parameter input: a matrix [N, K], or matrices [E, N, K] that rows pick
  FormatRef format;
  std::optional<double> scale;  // of the format's tensor_scale; none: all fields are fitted
};

// Why values of so many columns cannot be held in the format, or with that scale; nothing when they can.
std::optional<std::string> refuses_inputs(const Format& f, int64_t columns, const std::optional<double>& scale);

// Numeric dims of weights. Calls are inlined. A weight that the graph does not have is passed over (a family's
// functions do not all use all). Error when one is there but no product reads its columns, or for what refuses_inputs
// says.
Graph encode_inputs(Graph g, const std::vector<EncodedInput>& inputs);
// What all parameters read whose columns products multiply, fitted while the graph runs; but for those whose columns
// the format's blocks do not divide.
Graph encode_all_inputs(Graph g, const FormatRef& format);

struct EncodedState {
  std::string ending;          // of the names of states: "keys" or "values"
  FormatRef format;            // with one number for the whole beside its codes
  std::vector<double> scales;  // by layer
};

// Calls are inlined. A graph with neither such states nor an attention is as it was. Error when there are others than
// one update, or attention, for each scale: a model whose layers share caches, or have none.
Graph encode_states(Graph g, const std::vector<EncodedState>& states);

}  // namespace lumen::graph
