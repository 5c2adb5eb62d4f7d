// cut_layers: splits a function of a model into parts that run one after another, each with the parameters of one
// layer, so that a model larger than memory can be analyzed, quantized and run layer by layer. Values that one part
// computes and a later one reads are carried between them. Values that depend on no layer (positions, masks, rows of
// the embedding) are recomputed where they are read; everything after the last layer (final norm, logits, losses) is a
// part of its own. Found by the names of parameters ("layers.3.wq") and by data dependences. Proved by
// tests/graph/transform/layers_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The layer in a parameter's name ("layers.3.wq": 3); -1: none.
int layer_of(const std::string& parameter);

struct LayerPart {
  // Parameters of the layer have the same names in every part: "layer.wq". Carried values are data inputs and results
  // `carried_in(i)` and `carried_out(i)`; other inputs and results keep their names.
  Graph graph;
  int layer = -1;                       // -1: the part after the last layer
  std::vector<std::string> parameters;  // by the model's names
  std::vector<int> in, out;             // numbers of carried values, in the order of carried_in and carried_out
  std::string name_of(const std::string& parameter) const;  // its name in the graph
};
std::string carried_in(size_t i);
std::string carried_out(size_t i);

struct LayerCut {
  std::vector<LayerPart> parts;
  struct Carried {
    Type type;
    int from = 0, to = 0;  // the part that computes it, and the last one that reads it
  };
  std::vector<Carried> carried;
};

LayerCut cut_layers(Graph g);
// The same for a function without calls, not simplified: changing its parts is the same as changing the whole.
LayerCut cut_layers_as_written(const Graph& g);

}  // namespace lumen::graph
