#include "model/compress/reconstruction/objective.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/grad.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"

namespace lumen::model::compress {
namespace {

constexpr const char* kTrue = "true.";
constexpr const char* kScale = "scale.";
constexpr const char* kGradient = "gradient.";

bool compares(const graph::Type& t) {
  return !t.element.format && is_float(t.element.scalar);
}

// Indices in LayerPart::out of the part's float results.
std::vector<size_t> compared(const graph::LayerPart& part) {
  std::vector<size_t> out;
  for (size_t i = 0; i < part.out.size(); ++i)
    for (size_t r = 0; r < part.graph.results.size(); ++r)
      if (part.graph.result_names[r] == graph::carried_out(i) && compares(part.graph[part.graph.results[r]].type))
        out.push_back(i);
  return out;
}

std::vector<float> numbers_of(const run::DeviceTensorRef& t) {
  std::vector<float> out(graph::elements(t->type().shape).number());
  t->download(out.data(), out.size() * sizeof(float));
  return out;
}

}  // namespace

bool hands_on(const graph::LayerPart& part) {
  return !compared(part).empty();
}

graph::Graph objective_graph(const graph::LayerPart& part, const graph::Bindings& symbols,
                             const std::vector<std::string>& learned, bool gradients) {
  graph::Graph g = graph::bind_symbols(part.graph, symbols);
  graph::Builder build(g);
  graph::ValueId loss = -1;
  for (const size_t i : compared(part)) {
    graph::ValueId got = -1;
    for (size_t r = 0; r < g.results.size(); ++r)
      if (g.result_names[r] == graph::carried_out(i)) got = g.results[r];
    const graph::ValueId want = build.input(fmt::format("{}{}", kTrue, i), graph::Role::data, g[got].type);
    const graph::ValueId scale =
        build.input(fmt::format("{}{}", kScale, i), graph::Role::data, {{}, {Scalar::f32, {}}});
    const graph::ValueId lost = build.sub(build.convert(got, Scalar::f32), build.convert(want, Scalar::f32));
    const graph::Shape shape = g[lost].type.shape;
    std::vector<int> axes(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    const graph::ValueId squares = build.reduce(build.mul(lost, lost), graph::Reduction::sum, axes);
    const graph::ValueId mean =
        build.mul(build.reshape(squares, {}), build.scalar(1.0 / graph::elements(shape).number()));
    const graph::ValueId term = build.mul(mean, scale);
    loss = loss < 0 ? term : build.add(loss, term);
  }
  LUMEN_CHECK(loss >= 0, "a part that hands nothing on has no objective");
  g.results = {loss};
  g.result_names = {"loss"};
  if (!gradients) return g;
  std::vector<graph::ValueId> with_respect_to;
  for (const std::string& name : learned) with_respect_to.push_back(g.find_input(name));
  const std::vector<graph::ValueId> found = graph::differentiate(g, loss, with_respect_to);
  for (size_t i = 0; i < learned.size(); ++i) {
    g.results.push_back(found[i]);
    g.result_names.push_back(kGradient + learned[i]);
  }
  return g;
}

struct BlockObjective::Step {
  int64_t windows = 0;
  bool gradients = false;
  std::shared_ptr<run::Program> program;
  std::map<std::string, run::DeviceTensorRef> data;  // the part's inputs
  std::vector<std::pair<int, run::DeviceTensorRef>> truth;
};

BlockObjective::BlockObjective(run::Engine& engine, const calibrate::LayerRun& run, size_t part,
                               std::vector<std::string> learned, const calibrate::LayerRun::WeightOf& weight,
                               calibrate::CarriedValues* rounded, calibrate::CarriedValues* truth)
    : engine_(engine), run_(run), part_(part), learned_(std::move(learned)), rounded_(rounded), truth_(truth) {
  const graph::LayerPart& p = run_.part(part_);
  for (const std::string& name : learned_) names_.push_back(p.name_of(name));
  for (const std::string& name : p.parameters) {
    const graph::ValueId v = p.graph.find_input(p.name_of(name));
    if (v < 0) continue;
    const auto tensor = std::make_shared<run::DeviceTensor>(engine_.device(), p.graph[v].type);
    const std::span<const float> values = weight(name);
    tensor->upload(values.data(), values.size_bytes());
    weights_[p.name_of(name)] = tensor;
  }
  find_scales();
}

BlockObjective::~BlockObjective() = default;

// Sums in double, window after window.
void BlockObjective::find_scales() {
  const graph::LayerPart& p = run_.part(part_);
  for (const size_t i : compared(p)) {
    const graph::Type type = graph::bind(run_.carried_type(p.out[i]), run_.bindings(1));
    double squares = 0;
    LUMEN_CHECK(type.element.scalar == Scalar::f32, "the carried values are not f32");
    std::vector<float> values(graph::elements(type.shape).number());
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float));
    for (int64_t w = 0; w < run_.windows(); ++w) {
      truth_->read(p.out[i], w * std::ssize(bytes), bytes);
      for (const float x : values) squares += double{x} * x;
    }
    const double count = values.size(), mean = squares / (count * run_.windows());
    scales_.push_back(mean > 0 ? 1 / mean : 1);
  }
}

BlockObjective::Step& BlockObjective::step(int64_t windows, bool gradients) {
  for (Step& s : steps_)
    if (s.windows == windows && s.gradients == gradients) return s;
  const graph::LayerPart& p = run_.part(part_);
  const graph::Graph g = objective_graph(p, run_.bindings(windows), names_, gradients);
  run::CompileOptions compile;
  compile.exact = true;
  compile.products = run_.options().products;
  Step s;
  s.windows = windows;
  s.gradients = gradients;
  s.program = engine_.compile(g, compile);
  const std::vector<size_t> results = compared(p);
  for (const std::string& name : s.program->input_names()) {
    if (const auto w = weights_.find(name); w != weights_.end()) {
      s.program->bind(name, w->second);
      continue;
    }
    const auto tensor = std::make_shared<run::DeviceTensor>(engine_.device(), s.program->input_type(name));
    s.program->bind(name, tensor);
    bool own = false;
    for (size_t r = 0; r < results.size(); ++r) {
      if (name == fmt::format("{}{}", kScale, results[r])) tensor->upload(&scales_[r], sizeof(float)), own = true;
      if (name == fmt::format("{}{}", kTrue, results[r])) s.truth.emplace_back(p.out[results[r]], tensor), own = true;
    }
    if (!own) s.data[name] = tensor;
  }
  return steps_.emplace_back(std::move(s));
}

void BlockObjective::set(size_t i, std::span<const float> values) {
  weights_.at(names_[i])->upload(values.data(), values.size_bytes());
}

double BlockObjective::run(Step& s, std::span<const int64_t> windows) {
  run_.read_windows(part_, windows, rounded_, s.data);
  for (const auto& [number, tensor] : s.truth) {
    std::vector<uint8_t> bytes(tensor->bytes());
    const int64_t size = run_.carried_bytes(number);
    for (size_t w = 0; w < windows.size(); ++w)
      truth_->read(number, windows[w] * size, std::span<uint8_t>(bytes).subspan(w * size, size));
    tensor->upload(bytes.data(), bytes.size());
  }
  s.program->run();
  const double loss = numbers_of(s.program->result("loss")).at(0);
  if (!std::isfinite(loss))
    throw Error(Exit::numeric,
                fmt::format("the output of layer {} is not finite while its codes are learned", run_.part(part_).layer),
                "a smaller --rate may help");
  return loss;
}

double BlockObjective::loss(std::span<const int64_t> windows) {
  return run(step(std::ssize(windows), false), windows);
}

double BlockObjective::gradients(std::span<const int64_t> windows, std::vector<std::vector<float>>* to) {
  Step& s = step(std::ssize(windows), true);
  const double loss = run(s, windows);
  to->resize(learned_.size());
  for (size_t i = 0; i < learned_.size(); ++i) (*to)[i] = numbers_of(s.program->result(kGradient + names_[i]));
  return loss;
}

double BlockObjective::loss_of_all(int64_t at_once) {
  double sum = 0;
  for (int64_t done = 0; done < windows();) {
    std::vector<int64_t> some(std::min(at_once, windows() - done));
    std::iota(some.begin(), some.end(), done);
    sum += loss(some) * some.size();
    done += std::ssize(some);
  }
  return sum / windows();
}

}  // namespace lumen::model::compress
