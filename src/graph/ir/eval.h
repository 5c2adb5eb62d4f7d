// The oracle: executes a graph node by node in plain loops. Every kernel is tested against it.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A tensor of numbers: floats and integers in double (i64 beyond 2^53 does not occur), formats as blobs.
struct Tensor {
  Type type;                   // numeric dims
  std::vector<double> values;  // row-major; empty when the element is a format
  std::vector<uint8_t> blob;   // formats
};

struct EvalOptions {
  bool wide = false;  // all arithmetic in double, never rounded to f32: for finite differences
  Bindings symbols;
  // Combines this rank's operand of an exchange with those of other ranks; null: there is only one rank.
  std::function<Tensor(const Node&, const Tensor&)> exchange = {};
};

// Inputs by name (states included); symbols missing in the options follow from their shapes. Returns results by order;
// `states` receives the updated states by input name. Error for missing or misshapen inputs and for indices out of
// range.
std::vector<Tensor> eval(const Graph& g, const std::map<std::string, Tensor>& inputs, const EvalOptions& options = {},
                         std::map<std::string, Tensor>* states = nullptr);

// The uniform number of `random`: shared with kernels, bit for bit.
float uniform_random(uint32_t seed, uint32_t salt, uint64_t element);

}  // namespace lumen::graph
