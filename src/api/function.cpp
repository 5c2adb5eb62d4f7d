// Functions of the language called on another program's arrays, and their gradients. The shapes of the arguments give
// the shape symbols (f32[B, D]) their values; each set of values is compiled once.
#include <map>

#include "api/argument.h"
#include "api/array.h"
#include "api/boundary.h"
#include "api/options.h"
#include "base/check.h"
#include "base/error.h"
#include "base/messages/spelling.h"
#include "graph/grad/grad.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"
#include "include/lumen.h"
#include "model/arch/family/source.h"
#include "model/device_tensors/device_tensors.h"
#include "run/engine/engine.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

struct lumen_function {
  lumen_function(const char* text, const char* name, api::Options& options);

  using Arguments = std::span<const lumen_argument>;
  // The results on the device; they are valid until the next call.
  std::vector<run::DeviceTensorRef> call(Arguments inputs);
  std::vector<run::DeviceTensorRef> gradient(Arguments inputs, Arguments cotangents, std::span<const size_t> wanted);
  const graph::Graph& graph() const { return graph_; }

  const std::shared_ptr<api::Place> place;

 private:
  using Key =
      std::pair<graph::Bindings, std::vector<size_t>>;  // an empty list of inputs: the function itself, not a gradient
  graph::Bindings symbols_of(Arguments inputs) const;
  graph::Graph gradient_graph(const graph::Bindings& symbols, std::span<const size_t> wanted) const;
  void put(const model::device_tensors::BoundProgram& bound, const std::string& name, const lumen_argument& argument);
  std::vector<run::DeviceTensorRef> run(const Key& key, Arguments inputs, Arguments cotangents);

  model::arch::LibraryRef library_;
  graph::Graph graph_;
  std::vector<graph::ValueId> inputs_;
  bool exact_ = false;
  std::map<Key, model::device_tensors::BoundProgram> programs_;
};

namespace {

constexpr const char* kCotangent = "cotangent of ";

// The function of that name; without a name the last one of the text, because the others are then its callees.
graph::Graph graph_of(model::arch::Library& library, const char* text, const char* name) {
  const lang::File& file = library.replace_model_text(std::make_shared<Source>(Source{"function", text}));
  if (file.functions.empty())
    throw Error(Exit::user, "the text has no function", "fn double(x: f32[N]) -> f32[N] = 2 * x");
  if (!name) return model::arch::function_graph(library, file, file.functions.back().name);
  std::vector<std::string> names;
  for (const lang::Function& f : file.functions) names.push_back(f.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(Exit::usage, fmt::format("the text has no function '{}'", name), did_you_mean_any(name, names));
  return model::arch::function_graph(library, file, name);
}

// The interface supports only plain 32-bit numbers.
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

std::vector<int64_t> shape_of(const run::DeviceTensor& tensor) {
  std::vector<int64_t> shape;
  for (const graph::Dim& d : tensor.type().shape) shape.push_back(d.number());
  return shape;
}

// Copies all results to the caller's memory, or none when an allocation fails.
void hand_over(const std::vector<run::DeviceTensorRef>& values, lumen_result* results) {
  std::vector<std::unique_ptr<int64_t, void (*)(void*)>> shapes;
  std::vector<std::unique_ptr<float, void (*)(void*)>> numbers;
  for (const run::DeviceTensorRef& value : values) {
    std::vector<float> here(size_t(value->bytes()) / sizeof(float));
    value->download(here.data(), value->bytes());
    shapes.emplace_back(api::handed_over(std::span<const int64_t>(shape_of(*value))), std::free);
    numbers.emplace_back(api::handed_over(std::span<const float>(here)), std::free);
  }
  for (size_t i = 0; i < values.size(); ++i)
    results[i] = {int(values[i]->type().shape.size()), shapes[i].release(), numbers[i].release()};
}
void hand_over(const lumen_function& f, const std::vector<run::DeviceTensorRef>& values, lumen_array** results) {
  std::vector<std::unique_ptr<lumen_array>> arrays;
  for (const run::DeviceTensorRef& value : values) {
    arrays.push_back(api::make_array(f.place, shape_of(*value)));
    f.place->copy(arrays.back()->data(), value->data(), value->bytes());
  }
  f.place->engine().device().synchronize();
  for (size_t i = 0; i < values.size(); ++i) results[i] = arrays[i].release();
}

// Arguments in memory of this process.
std::vector<lumen_argument> here(std::span<const lumen_tensor> tensors) {
  std::vector<lumen_argument> out;
  for (const lumen_tensor& t : tensors) out.push_back({t, LUMEN_CPU, 0});
  return out;
}

}  // namespace

lumen_function::lumen_function(const char* text, const char* name, api::Options& options)
    : place(std::make_shared<api::Place>(api::engine_options(options))) {
  options.take("exact", exact_);
  const auto library = model::arch::Library::builtin();
  options.finish();
  graph_ = graph_of(*library, text, name);
  library_ = library;
  require_plain(graph_);
  inputs_ = graph_.inputs();
  // The language gives all results the same name, but programs look results up by name.
  for (size_t i = 0; i < graph_.results.size(); ++i) graph_.result_names[i] = fmt::format("result {}", i);
}

graph::Bindings lumen_function::symbols_of(Arguments inputs) const {
  if (inputs.size() != inputs_.size())
    throw usage_error("{} takes {} arguments, not {}", graph_.name, inputs_.size(), inputs.size());
  graph::Bindings symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::Node& node = graph_[inputs_[i]];
    const std::string what = fmt::format("argument '{}'", node.attributes.name);
    api::require_sound(inputs[i], place->device(), what);
    if (inputs[i].tensor.rank != std::ssize(node.type.shape))
      throw usage_error("{} is {}, the function takes {}", what, api::told(inputs[i].tensor), graph::print(node.type));
  }
  for (bool goes_on = true; goes_on;) {
    const size_t before = symbols.size();
    for (size_t i = 0; i < inputs.size(); ++i)
      for (int d = 0; d < inputs[i].tensor.rank; ++d)
        api::settle(graph_[inputs_[i]].type.shape[size_t(d)], inputs[i].tensor.shape[d], symbols);
    goes_on = symbols.size() > before;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::Node& node = graph_[inputs_[i]];
    const std::string what = fmt::format("argument '{}'", node.attributes.name);
    for (const graph::Dim& d : node.type.shape)
      for (const std::string& symbol : d.symbols)
        if (!symbols.contains(symbol))
          throw usage_error("{} is {}, the function takes {}", what, api::told(inputs[i].tensor),
                            graph::print(node.type));
    api::require_type(inputs[i].tensor, graph::bind(node.type, symbols), what);
  }
  return symbols;
}

// The function's graph with its results replaced by the gradients of the sum of all results, each weighted by its
// cotangent.
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

// Copies an argument to its input from its device. An input that the program does not read is skipped.
void lumen_function::put(const model::device_tensors::BoundProgram& bound, const std::string& name,
                         const lumen_argument& argument) {
  const int64_t bytes = api::bytes_of(argument.tensor);
  if (argument.kind == LUMEN_CPU) return bound.put(name, argument.tensor.data, bytes);
  const auto at = bound.data.find(name);
  if (at != bound.data.end()) place->copy(at->second->data(), argument.tensor.data, bytes);
}

std::vector<run::DeviceTensorRef> lumen_function::run(const Key& key, Arguments inputs, Arguments cotangents) {
  constexpr size_t kMostPrograms = 64;
  auto at = programs_.find(key);
  if (at == programs_.end()) {
    const graph::Graph g =
        key.second.empty() ? graph::bind_symbols(graph_, key.first) : gradient_graph(key.first, key.second);
    if (programs_.size() >= kMostPrograms) programs_.clear();
    const auto none = [](const std::string&) { return nullptr; };
    at = programs_.emplace(key, model::device_tensors::bound_program(place->engine(), g, {}, none)).first;
  }
  const model::device_tensors::BoundProgram& bound = at->second;
  for (size_t i = 0; i < inputs.size(); ++i) put(bound, graph_[inputs_[i]].attributes.name, inputs[i]);
  for (size_t i = 0; i < cotangents.size(); ++i) put(bound, kCotangent + graph_.result_names[i], cotangents[i]);
  bound.program->run();
  std::vector<run::DeviceTensorRef> out;
  for (const std::string& name : bound.results) out.push_back(bound.program->result(name));
  return out;
}

std::vector<run::DeviceTensorRef> lumen_function::call(Arguments inputs) {
  return run({symbols_of(inputs), {}}, inputs, {});
}

std::vector<run::DeviceTensorRef> lumen_function::gradient(Arguments inputs, Arguments cotangents,
                                                           std::span<const size_t> wanted) {
  const graph::Bindings symbols = symbols_of(inputs);
  if (cotangents.size() != graph_.results.size())
    throw usage_error("{} has {} results, but {} cotangents are given", graph_.name, graph_.results.size(),
                      cotangents.size());
  for (size_t i = 0; i < cotangents.size(); ++i) {
    const std::string what = fmt::format("cotangent {}", i + 1);
    api::require_sound(cotangents[i], place->device(), what);
    api::require_type(cotangents[i].tensor, graph::bind(graph_[graph_.results[i]].type, symbols), what);
  }
  if (wanted.empty()) throw usage_error("no input is named for the gradients");
  for (const size_t i : wanted) {
    if (i >= inputs_.size()) throw usage_error("there is no argument {}: they are counted from 0", i);
    if (graph_[inputs_[i]].type.element.scalar != Scalar::f32)
      throw usage_error("argument '{}' is of whole numbers, which have no gradient",
                        graph_[inputs_[i]].attributes.name);
  }
  return run({symbols, {wanted.begin(), wanted.end()}}, inputs, cotangents);
}

namespace {

// The part that all four call functions share.
void called(lumen_function* function, std::span<const lumen_argument> inputs, const void* results, size_t result_count,
            const std::function<void(const std::vector<run::DeviceTensorRef>&)>& take) {
  api::require(results, "results");
  if (result_count != function->graph().results.size())
    throw usage_error("{} has {} results, not {}", function->graph().name, function->graph().results.size(),
                      result_count);
  take(function->call(inputs));
}

// Null pointers are reported before any argument is read.
template <typename Argument>
void require_all(lumen_function* function, std::span<const Argument> inputs, std::span<const Argument> cotangents,
                 std::span<const size_t> wanted) {
  api::require(function, "function");
  if (!inputs.empty()) api::require(inputs.data(), "inputs");
  if (!cotangents.empty()) api::require(cotangents.data(), "cotangents");
  if (!wanted.empty()) api::require(wanted.data(), "wanted");
}

}  // namespace

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
  if (!function) return;
  const std::shared_ptr<api::Place> place = function->place;  // arrays may outlive the function
  const api::Place::Work work(*place);
  delete function;
}

int lumen_function_device(lumen_function* function, lumen_device* device) {
  return api::guarded([&] {
    api::require(function, "function");
    api::require(device, "device");
    *device = function->place->device();
  });
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
    require_all<lumen_tensor>(function, {inputs, count}, {}, {});
    const api::Place::Work work(*function->place);
    called(function, here({inputs, count}), results, result_count,
           [&](const auto& values) { hand_over(values, results); });
  });
}

int lumen_function_call_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                               lumen_array** results, size_t result_count) {
  return api::guarded([&] {
    require_all<lumen_argument>(function, {inputs, count}, {}, {});
    const api::Place::Work work(*function->place);
    called(function, {inputs, count}, results, result_count,
           [&](const auto& values) { hand_over(*function, values, results); });
  });
}

int lumen_function_gradient(lumen_function* function, const lumen_tensor* inputs, size_t count,
                            const lumen_tensor* cotangents, size_t result_count, const size_t* wanted,
                            size_t wanted_count, lumen_result* gradients) {
  return api::guarded([&] {
    require_all<lumen_tensor>(function, {inputs, count}, {cotangents, result_count}, {wanted, wanted_count});
    api::require(gradients, "gradients");
    const api::Place::Work work(*function->place);
    hand_over(function->gradient(here({inputs, count}), here({cotangents, result_count}), {wanted, wanted_count}),
              gradients);
  });
}

int lumen_function_gradient_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                                   const lumen_argument* cotangents, size_t result_count, const size_t* wanted,
                                   size_t wanted_count, lumen_array** gradients) {
  return api::guarded([&] {
    require_all<lumen_argument>(function, {inputs, count}, {cotangents, result_count}, {wanted, wanted_count});
    api::require(gradients, "gradients");
    const api::Place::Work work(*function->place);
    hand_over(*function, function->gradient({inputs, count}, {cotangents, result_count}, {wanted, wanted_count}),
              gradients);
  });
}

}  // extern "C"
