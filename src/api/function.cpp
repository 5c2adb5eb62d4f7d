// Functions of the language on numbers of another program, and their gradients. Symbols of shapes (f32[B, D]) get their
// values from the numbers a call comes with; each set of values is compiled once.
#include <map>
#include <mutex>

#include "api/boundary.h"
#include "api/options.h"
#include "base/check.h"
#include "base/error.h"
#include "graph/grad/grad.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"
#include "include/lumen.h"
#include "model/arch/family/source.h"
#include "model/network/device_tensors.h"
#include "number/read/names.h"
#include "run/engine/engine.h"

using namespace lumen;  // NOLINT: this is the border, where nobody includes it

struct lumen_function {
  lumen_function(const char* text, const char* name, api::Options& options);

  std::vector<std::vector<float>> call(std::span<const lumen_tensor> inputs, std::vector<graph::Type>* types);
  std::vector<std::vector<float>> gradient(std::span<const lumen_tensor> inputs,
                                           std::span<const lumen_tensor> cotangents, std::span<const size_t> wanted,
                                           std::vector<graph::Type>* types);
  const graph::Graph& graph() const { return graph_; }

  std::mutex mutex;

 private:
  using Key = std::pair<graph::Bindings, std::vector<size_t>>;  // no numbers of inputs: the function itself
  graph::Bindings symbols_of(std::span<const lumen_tensor> inputs) const;
  graph::Graph gradient_graph(const graph::Bindings& symbols, std::span<const size_t> wanted) const;
  std::vector<std::vector<float>> run(const Key& key, std::span<const lumen_tensor> inputs,
                                      std::span<const lumen_tensor> cotangents, std::vector<graph::Type>* types);

  model::LibraryRef library_;
  graph::Graph graph_;
  std::vector<graph::ValueId> inputs_;
  run::Engine engine_;
  bool exact_ = false;
  std::map<Key, model::BoundProgram> programs_;
};

namespace {

constexpr const char* kCotangent = "cotangent of ";

// The function that is meant: the one of that name, or the last of the text, for which the others are.
graph::Graph graph_of(model::Library& library, const char* text, const char* name) {
  const lang::File& file = library.replace_model_text(std::make_shared<Source>(Source{"function", text}));
  if (file.functions.empty())
    throw Error(Exit::user, "the text has no function", "fn double(x: f32[N]) -> f32[N] = 2 * x");
  if (!name) return model::function_graph(library, file, file.functions.back().name);
  std::vector<std::string> names;
  for (const lang::Function& f : file.functions) names.push_back(f.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(Exit::usage, fmt::format("the text has no function '{}'", name), read::nearest_names(name, names));
  return model::function_graph(library, file, name);
}

// What this border carries: plain numbers of 32 bits.
void require_plain(const graph::Graph& g) {
  for (const graph::ValueId v : g.inputs()) {
    const graph::Element& e = g[v].type.element;
    if (e.format || (e.scalar != Scalar::f32 && e.scalar != Scalar::i32))
      throw Error(Exit::user, fmt::format("parameter '{}' is {}", g[v].attributes.name, graph::print(g[v].type)),
                  "parameters are f32[..] or i32[..]; inside of a function numbers may be of any kind");
    if (g[v].attributes.role == graph::Role::state)
      throw user_error("parameter '{}' is a state: functions that are called have none", g[v].attributes.name);
  }
  for (size_t i = 0; i < g.results.size(); ++i) {
    const graph::Element& e = g[g.results[i]].type.element;
    if (e.format || e.scalar != Scalar::f32)
      throw Error(Exit::user, fmt::format("result {} is {}", i + 1, graph::print(g[g.results[i]].type)),
                  "results are f32[..]: convert it with f32(..)");
  }
}

// The symbol that a dimension settles when all of its others are known; false while it cannot.
bool settle(const graph::Dim& dim, int64_t extent, graph::Bindings& symbols) {
  std::string unknown;
  int64_t known = dim.coefficient;
  for (const std::string& symbol : dim.symbols) {
    if (const auto at = symbols.find(symbol); at != symbols.end()) {
      if (at->second > extent) return true;  // which is told when types are compared
      known *= at->second;
    } else if (unknown.empty()) {
      unknown = symbol;
    } else {
      return false;
    }
  }
  if (!unknown.empty() && known > 0 && extent % known == 0) symbols[unknown] = extent / known;
  return true;
}

std::string told(const lumen_tensor& t) {
  std::string shape;
  for (int i = 0; i < t.rank; ++i) shape += fmt::format("{}{}", i > 0 ? ", " : "", t.shape[i]);
  return fmt::format("{}[{}]", t.dtype == LUMEN_I32 ? "i32" : "f32", shape);
}

void require_sound(const lumen_tensor& t, const std::string& what) {
  constexpr int kMostAxes = 16;
  if (t.dtype != LUMEN_F32 && t.dtype != LUMEN_I32)
    throw usage_error("{} has dtype {}, which is none", what, int(t.dtype));
  if (t.rank < 0 || t.rank > kMostAxes) throw usage_error("{} has {} axes", what, t.rank);
  if (t.rank > 0) api::require(t.shape, "a shape");
  int64_t count = 1;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] < 1) throw usage_error("{} is empty: {}", what, told(t));
    if (t.shape[i] > INT32_MAX || count > (int64_t{1} << 40) / t.shape[i]) throw usage_error("{} is too large", what);
    count *= t.shape[i];
  }
  if (!t.data) throw usage_error("{} has no data", what);
}

// Error where numbers are not of this type.
void require_type(const lumen_tensor& t, const graph::Type& type, const std::string& what) {
  bool fits = std::ssize(type.shape) == t.rank && (type.element.scalar == Scalar::i32) == (t.dtype == LUMEN_I32);
  for (int i = 0; fits && i < t.rank; ++i) fits = type.shape[size_t(i)].number() == t.shape[i];
  if (!fits) throw usage_error("{} is {}, the function takes {}", what, told(t), graph::print(type));
}

int64_t bytes_of(const lumen_tensor& t) {
  int64_t bytes = 4;
  for (int i = 0; i < t.rank; ++i) bytes *= t.shape[i];
  return bytes;
}

// Hands all results over, or none.
void hand_over(const std::vector<std::vector<float>>& values, const std::vector<graph::Type>& types,
               lumen_result* results) {
  std::vector<std::unique_ptr<int64_t, void (*)(void*)>> shapes;
  std::vector<std::unique_ptr<float, void (*)(void*)>> numbers;
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<int64_t> shape;
    for (const graph::Dim& d : types[i].shape) shape.push_back(d.number());
    shapes.emplace_back(api::handed_over(std::span<const int64_t>(shape)), std::free);
    numbers.emplace_back(api::handed_over(std::span<const float>(values[i])), std::free);
  }
  for (size_t i = 0; i < values.size(); ++i)
    results[i] = {int(types[i].shape.size()), shapes[i].release(), numbers[i].release()};
}

}  // namespace

lumen_function::lumen_function(const char* text, const char* name, api::Options& options)
    : engine_(api::engine_options(options)) {
  options.take("exact", exact_);
  const auto library = model::Library::builtin();
  options.finish();
  graph_ = graph_of(*library, text, name);
  library_ = library;
  require_plain(graph_);
  inputs_ = graph_.inputs();
  // The language gives all results one name; programs find them by it.
  for (size_t i = 0; i < graph_.results.size(); ++i) graph_.result_names[i] = fmt::format("result {}", i);
}

graph::Bindings lumen_function::symbols_of(std::span<const lumen_tensor> inputs) const {
  if (inputs.size() != inputs_.size())
    throw usage_error("{} takes {} arguments, not {}", graph_.name, inputs_.size(), inputs.size());
  graph::Bindings symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::Node& node = graph_[inputs_[i]];
    const std::string what = fmt::format("argument '{}'", node.attributes.name);
    require_sound(inputs[i], what);
    if (inputs[i].rank != std::ssize(node.type.shape))
      throw usage_error("{} is {}, the function takes {}", what, told(inputs[i]), graph::print(node.type));
  }
  for (bool goes_on = true; goes_on;) {
    const size_t before = symbols.size();
    for (size_t i = 0; i < inputs.size(); ++i)
      for (int d = 0; d < inputs[i].rank; ++d)
        settle(graph_[inputs_[i]].type.shape[size_t(d)], inputs[i].shape[d], symbols);
    goes_on = symbols.size() > before;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::Node& node = graph_[inputs_[i]];
    const std::string what = fmt::format("argument '{}'", node.attributes.name);
    for (const graph::Dim& d : node.type.shape)
      for (const std::string& symbol : d.symbols)
        if (!symbols.contains(symbol))
          throw usage_error("{} is {}, the function takes {}", what, told(inputs[i]), graph::print(node.type));
    require_type(inputs[i], graph::bind(node.type, symbols), what);
  }
  return symbols;
}

// The function's graph, in whose place stand the gradients of the sum of its results, each weighed by its cotangent.
graph::Graph lumen_function::gradient_graph(const graph::Bindings& symbols, std::span<const size_t> wanted) const {
  graph::Graph g = graph::bind_symbols(graph_, symbols);
  graph::Builder build(g);
  graph::ValueId loss = -1;
  for (size_t i = 0; i < graph_.results.size(); ++i) {
    const graph::ValueId result = g.results[i];
    const graph::Type type = g[result].type;
    const graph::ValueId cotangent =
        build.input(kCotangent + g.result_names[i], graph::Role::data, {type.shape, graph::Element{}});
    graph::ValueId sum = build.mul(result, cotangent);
    std::vector<int> axes;
    for (size_t a = 0; a < type.shape.size(); ++a) axes.push_back(int(a));
    if (!axes.empty()) sum = build.reshape(build.reduce(sum, graph::Reduction::sum, axes), {});
    loss = loss < 0 ? sum : build.add(loss, sum);
  }
  std::vector<graph::ValueId> with_respect_to;
  for (const size_t i : wanted) with_respect_to.push_back(g.find_input(graph_[inputs_[i]].attributes.name));
  const std::vector<graph::ValueId> gradients = graph::differentiate(g, loss, with_respect_to);
  g.results = gradients;
  g.result_names.clear();
  for (size_t i = 0; i < gradients.size(); ++i) g.result_names.push_back(fmt::format("gradient {}", i));
  return g;
}

std::vector<std::vector<float>> lumen_function::run(const Key& key, std::span<const lumen_tensor> inputs,
                                                    std::span<const lumen_tensor> cotangents,
                                                    std::vector<graph::Type>* types) {
  constexpr size_t kMostPrograms = 64;
  auto at = programs_.find(key);
  if (at == programs_.end()) {
    const graph::Graph g =
        key.second.empty() ? graph::bind_symbols(graph_, key.first) : gradient_graph(key.first, key.second);
    if (programs_.size() >= kMostPrograms) programs_.clear();
    at = programs_.emplace(key, model::bound_program(engine_, g, {}, [](const std::string&) { return nullptr; })).first;
  }
  const model::BoundProgram& bound = at->second;
  for (size_t i = 0; i < inputs.size(); ++i)
    bound.put(graph_[inputs_[i]].attributes.name, inputs[i].data, bytes_of(inputs[i]));
  for (size_t i = 0; i < cotangents.size(); ++i)
    bound.put(kCotangent + graph_.result_names[i], cotangents[i].data, bytes_of(cotangents[i]));
  bound.program->run();
  std::vector<std::vector<float>> out;
  for (const std::string& name : bound.results) {
    const run::DeviceTensorRef result = bound.program->result(name);
    types->push_back(result->type());
    out.emplace_back(size_t(graph::elements(result->type().shape).number()));
    result->download(out.back().data(), std::ssize(out.back()) * 4);
  }
  return out;
}

std::vector<std::vector<float>> lumen_function::call(std::span<const lumen_tensor> inputs,
                                                     std::vector<graph::Type>* types) {
  return run({symbols_of(inputs), {}}, inputs, {}, types);
}

std::vector<std::vector<float>> lumen_function::gradient(std::span<const lumen_tensor> inputs,
                                                         std::span<const lumen_tensor> cotangents,
                                                         std::span<const size_t> wanted,
                                                         std::vector<graph::Type>* types) {
  const graph::Bindings symbols = symbols_of(inputs);
  if (cotangents.size() != graph_.results.size())
    throw usage_error("{} has {} results, but {} cotangents are given", graph_.name, graph_.results.size(),
                      cotangents.size());
  for (size_t i = 0; i < cotangents.size(); ++i) {
    const std::string what = fmt::format("cotangent {}", i + 1);
    require_sound(cotangents[i], what);
    require_type(cotangents[i], graph::bind(graph_[graph_.results[i]].type, symbols), what);
  }
  if (wanted.empty()) throw usage_error("gradients are asked for, but of nothing");
  for (const size_t i : wanted) {
    if (i >= inputs_.size()) throw usage_error("there is no argument {}: they are counted from 0", i);
    if (graph_[inputs_[i]].type.element.scalar != Scalar::f32)
      throw usage_error("argument '{}' is of whole numbers, which have no gradient",
                        graph_[inputs_[i]].attributes.name);
  }
  return run({symbols, {wanted.begin(), wanted.end()}}, inputs, cotangents, types);
}

extern "C" {

int lumen_function_open(const char* text, const char* name, const char* options, lumen_function** function) {
  return api::guarded([&] {
    api::require(text, "text");
    api::require(function, "function");
    api::Options given(options);
    *function = new lumen_function(text, name, given);
  });
}

void lumen_function_close(lumen_function* function) {
  delete function;
}

int lumen_function_info(lumen_function* function, char** json) {
  return api::guarded([&] {
    api::require(function, "function");
    api::require(json, "json");
    const graph::Graph& g = function->graph();
    nlohmann::ordered_json out;
    out["name"] = g.name;
    out["inputs"] = nlohmann::ordered_json::array();
    for (const graph::ValueId v : g.inputs()) {
      const graph::Element& e = g[v].type.element;
      out["inputs"].push_back({{"name", g[v].attributes.name},
                               {"type", graph::print(g[v].type)},
                               {"dtype", e.scalar == Scalar::i32 ? "i32" : "f32"}});
    }
    out["results"] = nlohmann::ordered_json::array();
    for (const graph::ValueId v : g.results) out["results"].push_back(graph::print(g[v].type));
    *json = api::handed_over(out.dump());
  });
}

int lumen_function_call(lumen_function* function, const lumen_tensor* inputs, size_t count, lumen_result* results,
                        size_t result_count) {
  return api::guarded([&] {
    api::require(function, "function");
    api::require(results, "results");
    if (count > 0) api::require(inputs, "inputs");
    const std::lock_guard lock(function->mutex);
    if (result_count != function->graph().results.size())
      throw usage_error("{} has {} results, not {}", function->graph().name, function->graph().results.size(),
                        result_count);
    std::vector<graph::Type> types;
    const auto values = function->call({inputs, count}, &types);
    hand_over(values, types, results);
  });
}

int lumen_function_gradient(lumen_function* function, const lumen_tensor* inputs, size_t count,
                            const lumen_tensor* cotangents, size_t result_count, const size_t* wanted,
                            size_t wanted_count, lumen_result* gradients) {
  return api::guarded([&] {
    api::require(function, "function");
    api::require(gradients, "gradients");
    if (count > 0) api::require(inputs, "inputs");
    if (result_count > 0) api::require(cotangents, "cotangents");
    if (wanted_count > 0) api::require(wanted, "wanted");
    const std::lock_guard lock(function->mutex);
    std::vector<graph::Type> types;
    const auto values = function->gradient({inputs, count}, {cotangents, result_count}, {wanted, wanted_count}, &types);
    hand_over(values, types, gradients);
  });
}

}  // extern "C"
