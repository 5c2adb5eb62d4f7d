// encode_inputs: the activations that products with named weights read are cast to a number format first, as if stored
// in it: low-bit activations. Fields of the format are fitted at run time (dynamic: per row or per block, as the
// format's text defines), or its scale is a constant from calibration (static). Products that read the same value in
// the same format share one encoding. encode_states: the same for values a step writes into its caches, with a scale
// for each layer; the caches then hold numbers of that format, whatever their storage type. Functions without caches
// (losses) encode the keys and values of their attentions. Proved by tests/graph/transform/encode_inputs_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct EncodedInput {
  std::string weight;  // a parameter input: a matrix [N, K], or matrices [E, N, K] that rows select
  FormatRef format;
  std::optional<double> scale;  // of the format's tensor_scale; none: all fields are fitted
};

// The reason why values of this many columns cannot be stored in the format, or with that scale; nullopt when they can.
std::optional<std::string> refuses_inputs(const Format& f, int64_t columns, const std::optional<double>& scale);

// Numeric dims of weights. Calls are inlined. A weight that is not in the graph is skipped (a family's functions do not
// all use all weights). Error if a weight has no product that reads its columns, or if refuses_inputs gives a reason.
Graph encode_inputs(Graph g, const std::vector<EncodedInput>& inputs);
// Encodes the activations of all parameters whose columns products sum over, fitted at run time; except those whose
// columns the format's blocks do not divide.
Graph encode_all_inputs(Graph g, const FormatRef& format);

struct EncodedState {
  std::string ending;          // suffix of the states' names: "keys" or "values"
  FormatRef format;            // with one field for the whole tensor in addition to its codes
  std::vector<double> scales;  // by layer
};

// Calls are inlined. A graph with neither such states nor an attention is unchanged. Error unless there is exactly one
// update, or attention, for each scale: a model whose layers share caches, or have none.
Graph encode_states(Graph g, const std::vector<EncodedState>& states);

}  // namespace lumen::graph
