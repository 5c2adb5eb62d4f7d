// Language to graph: checks shapes and types of functions and models, reports mistakes with place and hint, and builds graphs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "lang/ast.h"
#include "number/library.h"

namespace lumen::graph {

// All files in scope (the embedded library of functions first). Functions are found by name across them.
struct Scope {
  std::vector<const lang::File*> files;
  const FormatLibrary* formats = nullptr;
};

// Checks every function and model of a file without building anything a user would run. Error on the first mistake.
void check_file(const Scope& scope, const lang::File& file);

// A function with typed parameters becomes a graph: parameters are data inputs (or `state` when typed so).
Graph elaborate_function(const Scope& scope, const lang::Function& fn);

// A model's numbers: config keys with values (integers or reals), as given by a size, a file or a recipe.
using Config = std::map<std::string, double>;

struct ModelParameter {
  std::string name;               // "embed", "layers.3.wq"
  Shape shape;                    // numbers
  std::string gguf, hf;           // names in files, {i} filled in
  std::string role;               // "attention_q", "norm", "embedding", ...: strategies select by it
  std::string init;               // "normal", "ones", "zeros", "tied"
  double init_scale = 0.02;
  bool optional = false;          // e.g. an output matrix that may be tied to the embedding
};

// Default config of the model overlaid with a named size and with explicit values; Error on unknown keys or missing values.
Config model_config(const lang::ModelDecl& model, const std::string& size, const Config& values);
std::vector<ModelParameter> model_parameters(const Scope& scope, const lang::ModelDecl& model, const Config& config);

// One of the model's functions with the config applied. Parameters become parameter inputs by name; `layers` unrolled.
Graph elaborate_model(const Scope& scope, const lang::ModelDecl& model, const std::string& function, const Config& config);

}  // namespace lumen::graph
