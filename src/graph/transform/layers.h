// cut_layers: a function of a model as parts that run one after another, each with the parameters of one layer, so that
// a model larger than memory can be looked at, rounded and run layer by layer. What a part computes and a later one
// reads is carried from one to the other. What depends on no layer (positions, masks, rows of the embedding) is
// computed again wherever it is read; what follows the last layer (final norm, logits, losses) is a part of its own.
// Found by the names of parameters ("layers.3.wq") and by what depends on what. Proved by
// tests/graph/transform/layers_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The layer a parameter's name says it belongs to ("layers.3.wq": 3); -1: none.
int layer_of(const std::string& parameter);

struct LayerPart {
  // Parameters of the layer are called alike in every part: "layer.wq". Values that are carried are data inputs and
  // results `carried_in(i)` and `carried_out(i)`; other inputs and results have the names they had.
  Graph graph;
  int layer = -1;                       // -1: what follows the last layer
  std::vector<std::string> parameters;  // by the model's names
  std::vector<int> in, out;             // numbers of carried values, in the order of carried_in and carried_out
  std::string name_of(const std::string& parameter) const;  // what the graph calls it
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
// The same of a function without calls, as it is written: what is made of its parts is what is made of all of it.
LayerCut cut_layers_as_written(const Graph& g);

}  // namespace lumen::graph
