#include "model/train/offload/layer_step.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "graph/ir/text.h"
#include "model/train/offload/offload.h"
#include "run/device/available.h"

namespace lumen::model {
namespace {

// As evaluations of a whole model are compiled.
run::CompileOptions evaluation_options(const Method& method) {
  run::CompileOptions options;
  options.symbols = method.options().symbols;
  return options;
}

}  // namespace

std::unique_ptr<LayerStep> LayerStep::open(run::Engine& engine, const Model& model, const Method& method,
                                           const Recipe& recipe, TensorOf tensor) {
  if (!offloads_layers(engine.device(), recipe)) {
    note("parameters stay where they are: this device's memory is the host's");
    return nullptr;
  }
  return std::unique_ptr<LayerStep>(
      new LayerStep(engine, method, recipe, plan_layers(model, method, recipe), std::move(tensor)));
}

LayerStep::LayerStep(run::Engine& engine, const Method& method, const Recipe& recipe, LayerPlan plan, TensorOf tensor)
    : engine_(engine), method_(method), plan_(std::move(plan)), tensor_(std::move(tensor)) {
  const OffloadPlace place = *offload_settings(recipe.offload).layers;
  const std::filesystem::path own = run_folder(recipe);
  parameters_ = Visits::open(engine_, place, own, plan_.parameters, kParameterSeats);
  gradients_ = Visits::open(engine_, place, own, plan_.gradients, kGradientSeats);
  LUMEN_CHECK(parameters_ && gradients_);
  note(fmt::format("{} of layers' parameters and {} of their gradients lie in {}",
                   run::print_amount(all_bytes(plan_.parameters)), run::print_amount(all_bytes(plan_.gradients)),
                   parameters_->describe()));
}

// The largest first, whose memory for values serves the others.
void LayerStep::compile_all(const std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>>& work,
                            const run::CompileOptions& options) {
  struct Kind {
    const graph::Graph* graph;
    std::string key;
    int64_t bytes;
  };
  const auto key_of = [&](const graph::Graph& g) {
    return fmt::format("{} {}", scalar_name(options.products.scalar), graph::print(g));
  };
  std::vector<Kind> kinds;
  for (const auto& [g, unused] : work) {
    std::string key = key_of(*g);
    const auto same = [&](const Kind& k) { return k.key == key; };
    if (by_text_.contains(key) || std::any_of(kinds.begin(), kinds.end(), same)) continue;
    kinds.push_back({g, std::move(key), engine_.arena_bytes(*g, options)});
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) { return a.bytes > b.bytes; });
  for (const Kind& kind : kinds) {
    run::CompileOptions own = options;
    own.lender = lender_;
    const std::shared_ptr<run::Program> program = by_text_[kind.key] = engine_.compile(*kind.graph, own);
    if (!lender_) lender_ = program;
  }
  for (const auto& [g, to] : work) *to = by_text_.at(key_of(*g));
}

void LayerStep::compile() {
  std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>> work;
  programs_.resize(plan_.parts.size());
  for (size_t k = 0; k < programs_.size(); ++k) {
    LayerPlan::Part& at = plan_.parts[k];
    for (auto [g, to] : {std::pair(&at.forward, &programs_[k].forward),
                         {&at.backward, &programs_[k].backward},
                         {&at.more, &programs_[k].more}})
      if (*g) work.emplace_back(&**g, to);
  }
  compile_all(work, method_.options());
}

bool LayerStep::has(const std::string& name) const {
  return parameters_->find(name) || gradients_->find(name);
}

run::DeviceTensorRef LayerStep::tensor(const std::string& name, const graph::Type& type) {
  for (Visits* visits : {parameters_.get(), gradients_.get()})
    if (visits->find(name)) return visits->tensor(name);
  return tensor_(name, type);
}

run::DeviceTensorRef LayerStep::between(const std::string& name, int carried) {
  run::DeviceTensorRef& tensor = between_[name];
  if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine_.device(), plan_.carried[carried].type);
  return tensor;
}

void LayerStep::bind(const LayerPlan::Part& at, run::Program& program) {
  std::map<std::string, std::pair<std::string, int>> known;
  const auto hand = [&](const std::string& input, const std::string& name, int carried) {
    known[input] = {name, carried};
  };
  for (size_t i = 0; i < at.part.in.size(); ++i) {
    hand(graph::carried_in(i), plan_.kept_name(at.part.in[i]), at.part.in[i]);
    hand(leaving(i), plan_.gradient_name(at.part.in[i]), at.part.in[i]);
  }
  for (size_t i = 0; i < at.part.out.size(); ++i) {
    hand(kept(i), plan_.kept_name(at.part.out[i]), at.part.out[i]);
    hand(arriving(i), plan_.gradient_name(at.part.out[i]), at.part.out[i]);
  }
  for (const std::string& input : program.input_names()) {
    if (const auto k = known.find(input); k != known.end()) {
      program.bind(input, between(k->second.first, k->second.second));
      continue;
    }
    const std::string prefix = input.starts_with(kGradient) ? kGradient : "";
    const auto name = at.names.find(input.substr(prefix.size()));
    program.bind(input, tensor(name == at.names.end() ? input : prefix + name->second, program.input_type(input)));
  }
}

void LayerStep::call(int layer) {
  if (layer >= 0) parameters_->call(plan_.group_of.at(layer));
}

// `next`: the layer that is wanted then; -1: none.
void LayerStep::forward(const LayerPlan::Part& at, run::Program& program, int next) {
  call(at.part.layer);
  call(next);
  if (at.part.layer >= 0) parameters_->come(plan_.group_of.at(at.part.layer));
  bind(at, program);
  program.run();
  if (at.part.layer >= 0) parameters_->leave(plan_.group_of.at(at.part.layer), false);
}

void LayerStep::backward(const LayerPlan::Part& at, run::Program& program, bool first, int next) {
  call(at.part.layer);
  call(next);
  if (at.part.layer >= 0) {
    const size_t group = plan_.group_of.at(at.part.layer);
    if (first)
      gradients_->claim(group);
    else
      gradients_->come(group);
    parameters_->come(group);
  }
  bind(at, program);
  program.run();
  for (const Parameter& p : method_.trained()) {
    if (std::find(at.part.parameters.begin(), at.part.parameters.end(), p.name) == at.part.parameters.end()) continue;
    program.result(kSquares + at.part.name_of(p.name))->download(&squares_[p.name], sizeof(float));
  }
  if (at.part.layer < 0) return;
  const size_t group = plan_.group_of.at(at.part.layer);
  parameters_->leave(group, false);
  gradients_->leave(group, true);
}

double LayerStep::run(bool first) {
  const auto layer_of = [&](size_t k) { return plan_.parts[k].part.layer; };
  const size_t last = plan_.parts.size() - 1;
  for (size_t k = 0; k < last; ++k) forward(plan_.parts[k], *programs_[k].forward, layer_of(k + 1));
  float loss = 0;
  for (size_t k = last + 1; k-- > 0;) {
    run::Program& program = first || !programs_[k].more ? *programs_[k].backward : *programs_[k].more;
    backward(plan_.parts[k], program, first, k > 0 ? layer_of(k - 1) : -1);
    if (k == last) program.result("loss")->download(&loss, sizeof loss);
  }
  return loss;
}

float LayerStep::norm() const {
  bool begun = false;
  float total = 0;
  for (const Parameter& p : method_.trained()) {
    const float square = squares_.at(p.name);
    total = begun ? total + square : square;
    begun = true;
  }
  return std::sqrt(total);
}

float LayerStep::clip(double max_norm) const {
  if (max_norm <= 0) return 1;
  return std::min(1.0F, static_cast<float>(max_norm) / (norm() + 1e-12F));
}

void LayerStep::finish() {
  programs_.clear();
  evaluated_.clear();
  by_text_.clear();
  between_.clear();
  lender_ = nullptr;
}

void LayerStep::turn(int from, int to) {
  const auto group = [&](int layer) { return plan_.group_of.at(layer); };
  if (from >= 0) {
    parameters_->leave(group(from), true);
    gradients_->leave(group(from), false);
  }
  if (to < 0) return;
  for (Visits* visits : {parameters_.get(), gradients_.get()}) {
    visits->come(group(to));
    if (group(to) + 1 < visits->groups().size()) visits->call(group(to) + 1);
  }
}

run::DeviceTensorRef LayerStep::losses() {
  const size_t parts = plan_.evaluated.size();
  if (evaluated_.empty()) {
    std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>> work;
    evaluated_.resize(parts);
    for (size_t k = 0; k < parts; ++k) work.emplace_back(&*plan_.evaluated[k].forward, &evaluated_[k].forward);
    compile_all(work, evaluation_options(method_));
  }
  for (size_t k = 0; k < parts; ++k)
    forward(plan_.evaluated[k], *evaluated_[k].forward, k + 1 < parts ? plan_.evaluated[k + 1].part.layer : -1);
  return evaluated_.back().forward->result(kResult);
}

int64_t LayerStep::own_bytes() const {
  int64_t bytes = 0;
  for (const auto& [unused, program] : by_text_) bytes += program->own_bytes();
  return bytes;
}

int64_t LayerStep::between_bytes() const {
  int64_t bytes = 0;
  for (const auto& [unused, tensor] : between_) bytes += tensor->bytes();
  return bytes;
}

std::string LayerStep::explain() const {
  std::string out;
  for (const auto& [unused, program] : by_text_) out += program->explain();
  return out;
}

}  // namespace lumen::model
