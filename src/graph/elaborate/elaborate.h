// Language to graph: checks shapes and types of functions and models, reports mistakes with position and hint, and
// builds graphs.
//
// May include: base, base/messages, graph/ir, lang, number/library.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "lang/ast.h"
#include "number/library/library.h"

namespace lumen::graph {

// All files in scope (the embedded library of functions first). Functions are found by name across them.
struct Scope {
  std::vector<const lang::File*> files;
  const FormatLibrary* formats = nullptr;
};

// Checks every function and model of a file without building a graph to run. Error on the first mistake.
void check_file(const Scope& scope, const lang::File& file);

// A function with typed parameters becomes a graph: parameters are data inputs (or `state` when typed so).
Graph elaborate_function(const Scope& scope, const lang::Function& fn);

// A model's numbers: config keys with values, from a size, a file or a recipe. Keys with an axis have an entry for each
// element ("window.3"); the value of a text is its index among the key's choices.
using Config = std::map<std::string, double>;

// The members of a model that extends another, including the inherited ones; other models are unchanged.
lang::ModelDecl complete_model(const Scope& scope, const lang::ModelDecl& model);

// The allowed values of a text key, in the order of their numbers in a Config; empty for numbers.
std::vector<std::string> choices_of(const lang::ConfigKey& key);

struct ModelParameter {
  std::string name;                  // "embed", "layers.3.wq"
  Shape shape;                       // numbers
  std::string gguf, hf;              // names in files, {i} replaced
  std::vector<std::string> hf_also;  // alternative names to `hf`
  std::string role;                  // "attention_q", "norm", "embedding", ...: strategies select by it
  std::string init;                  // "normal", "residual", "ones", "zeros", "each"
  double init_scale = 0.02;
  std::vector<double> init_values;  // of "each"
  bool optional = false;            // e.g. an output matrix that may be tied to the embedding
};

// Default config of a complete model overlaid with a named size and with explicit values; Error on unknown keys or
// missing values. A plain name given for a key with an axis is the value of all its elements.
Config model_config(const lang::ModelDecl& model, const std::string& size, const Config& values);
// A number written in a declaration, e.g. the condition of `when`; truth values are 0 and 1.
// `element`: the value of `i`.
double config_number(const lang::ModelDecl& model, const lang::Expr& e, const Config& config,
                     std::optional<int64_t> element = {});
std::vector<ModelParameter> model_parameters(const Scope& scope, const lang::ModelDecl& model, const Config& config);

// One of the model's functions with the config applied. Parameters become parameter inputs by name; `layers` unrolled.
Graph elaborate_model(const Scope& scope, const lang::ModelDecl& model, const std::string& function,
                      const Config& config);

// Optimizers: config and functions, like a model's. A function for values of these types: parameters named in `types`
// become inputs of exactly those types, others of their written types, with the extents that `types` determine.
bool is_optimizer(const lang::ModelDecl& decl);
Config optimizer_config(const lang::ModelDecl& optimizer, const Config& values);
Graph elaborate_update(const Scope& scope, const lang::ModelDecl& optimizer, const std::string& function,
                       const Config& config, const std::map<std::string, Type>& types);
// The result of an optimizer's function of numbers, in double precision.
double elaborate_number(const Scope& scope, const lang::ModelDecl& optimizer, const std::string& function,
                        const Config& config, const std::vector<double>& arguments);

}  // namespace lumen::graph
