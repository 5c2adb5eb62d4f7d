#include "model/compress/criteria/layer_outputs.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/match/attend.h"
#include "graph/pass/pass.h"

namespace lumen::model::compress {
namespace {

constexpr const char* kTrue = "true.";

bool is_handed_on(const graph::Graph& g, size_t result) {
  const graph::Type& t = g[g.results[result]].type;
  return g.result_names[result].starts_with("carried.out.") && !t.element.format && is_float(t.element.scalar);
}

// The float outputs of the part and its attention probabilities, as named results.
graph::Graph watched(const graph::LayerPart& part, const graph::Bindings& symbols) {
  graph::Graph g = graph::bind_symbols(part.graph, symbols);
  graph::inline_calls(g);
  graph::simplify(g);
  std::vector<graph::ValueId> results;
  std::vector<std::string> names;
  for (size_t r = 0; r < g.results.size(); ++r) {
    if (!is_handed_on(g, r)) continue;
    results.push_back(g.results[r]);
    names.push_back(fmt::format("outputs.{}", r));
  }
  const std::vector<graph::Attention> attentions = graph::find_attention(g, graph::users_of(g), 0, false);
  for (size_t a = 0; a < attentions.size(); ++a) {
    results.push_back(attentions[a].probability);
    names.push_back(fmt::format("attention.{}", a));
  }
  g.results = results;
  g.result_names = names;
  return g;
}

graph::ValueId sum_of(graph::Builder& b, const graph::Graph& g, graph::ValueId x) {
  std::vector<int> axes(g[x].type.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return b.reshape(b.reduce(x, graph::Reduction::sum, axes), {});
}

// p log(p / q) of probabilities, 0 where p is.
graph::ValueId divergence(graph::Builder& b, const graph::Graph& g, graph::ValueId p, graph::ValueId q) {
  Formula f;
  f.inputs = {g[p].type.element.scalar, g[q].type.element.scalar};
  const auto log_of = [&](int x) {
    return f.op(ScalarOp::log_, f.op(ScalarOp::max_, x, f.constant(Scalar::f32, 1e-30)));
  };
  f.outputs = {f.op(ScalarOp::mul_, f.input(0), f.op(ScalarOp::sub_, log_of(f.input(0)), log_of(f.input(1))))};
  return b.map(f, {p, q});
}

// For every result of `watched` its loss, given the true one as an input whose name is prefixed by kTrue. For outputs
// also the sum of squares that the loss is relative to ("size").
graph::Graph losses(graph::Graph g) {
  const std::vector<graph::ValueId> results = g.results;
  const std::vector<std::string> names = g.result_names;
  g.results.clear();
  g.result_names.clear();
  graph::Builder b(g);
  graph::ValueId lost = -1, size = -1, looked = -1;
  int64_t rows = 0;  // of probabilities
  const auto add = [&](graph::ValueId* to, graph::ValueId x) { *to = *to < 0 ? x : b.add(*to, x); };
  for (size_t r = 0; r < results.size(); ++r) {
    const graph::ValueId truth = b.input(kTrue + names[r], graph::Role::data, g[results[r]].type);
    if (names[r].starts_with("attention.")) {
      const graph::Shape& shape = g[truth].type.shape;
      rows += graph::elements(shape).number() / shape.back().number();
      add(&looked, sum_of(b, g, divergence(b, g, truth, results[r])));
      continue;
    }
    const graph::ValueId x = b.convert(truth, Scalar::f32), off = b.sub(b.convert(results[r], Scalar::f32), x);
    add(&lost, sum_of(b, g, b.mul(off, off)));
    add(&size, sum_of(b, g, b.mul(x, x)));
  }
  const auto put = [&](const char* name, graph::ValueId v) {
    g.results.push_back(v);
    g.result_names.emplace_back(name);
  };
  put("lost", lost);
  put("size", size);
  if (looked >= 0) put("looked", b.mul(looked, b.scalar(1.0 / rows)));
  return g;
}

double number(run::Program& p, const char* name) {
  float x = 0;
  p.result(name)->download(&x, sizeof x);
  return x;
}

}  // namespace

LayerOutputs::LayerOutputs(run::Engine& engine, const calibrate::LayerRun& run, size_t part,
                           const calibrate::LayerRun::WeightOf& weight, calibrate::CarriedValues* from, int64_t windows)
    : part_(run.part(part)), weight_(weight) {
  run::CompileOptions compile;
  compile.exact = true;
  compile.products = run.options().products;
  graph::Graph g = watched(part_, run.bindings(windows));
  LUMEN_CHECK(!g.results.empty(), "a part that hands nothing on");
  true_ = engine.compile(g, compile);
  other_ = engine.compile(losses(std::move(g)), compile);
  std::map<std::string, run::DeviceTensorRef> data;
  for (const auto& program : {true_, other_})
    for (const std::string& name : program->input_names()) {
      if (name.starts_with(kTrue)) continue;
      bool parameter = false;
      for (const std::string& own : part_.parameters) parameter |= part_.name_of(own) == name;
      run::DeviceTensorRef& tensor = parameter ? weights_[name] : data[name];
      if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine.device(), program->input_type(name));
      program->bind(name, tensor);
    }
  for (const std::string& own : part_.parameters) {
    const auto tensor = weights_.find(part_.name_of(own));
    if (tensor == weights_.end()) continue;
    const std::span<const float> values = weight_(own);
    tensor->second->upload(values.data(), values.size_bytes());
  }
  std::vector<int64_t> first(windows);
  std::iota(first.begin(), first.end(), 0);
  run.read_windows(part, first, from, data);
  true_->run();
  for (const std::string& name : other_->input_names())
    if (name.starts_with(kTrue)) other_->bind(name, true_->result(name.substr(std::string(kTrue).size())));
}

OutputLoss LayerOutputs::with(const std::string& parameter, std::span<const float> values) {
  const auto tensor = weights_.find(part_.name_of(parameter));
  LUMEN_CHECK(tensor != weights_.end(), "the layer does not read '{}'", parameter);
  tensor->second->upload(values.data(), values.size_bytes());
  other_->run();
  OutputLoss out;
  const double size = number(*other_, "size");
  out.outputs = size > 0 ? number(*other_, "lost") / size : 0;
  for (const std::string& name : other_->input_names())
    if (name.starts_with("true.attention.")) {
      out.attention = std::max(0.0, number(*other_, "looked"));
      break;
    }
  const std::span<const float> own = weight_(parameter);
  tensor->second->upload(own.data(), own.size_bytes());
  if (!std::isfinite(out.outputs) || !std::isfinite(out.attention))
    throw Error(Exit::numeric, fmt::format("the output of the layer of '{}' is not finite", parameter),
                "the model's activations broke; find out where");
  return out;
}

}  // namespace lumen::model::compress
