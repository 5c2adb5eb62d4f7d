#include "apps/recommend/sensitivity/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/draws/draws.h"
#include "base/error.h"
#include "graph/grad/reverse.h"

namespace lumen::recommend {
namespace {

constexpr const char* kOfPlans = "planned";  // role of matrices
constexpr uint64_t kSequenceDraws = 0x73656e73;

// The loss of applied matrices, without training's regularizers, and its gradients with respect to them.
class LossGradients {
 public:
  LossGradients(Recommender& model) : model_(model), family_(model.library().family(model.settings().family)) {
    config_ = model.settings().config;
    if (!model.has_plans() || !config_.contains("applied"))
      throw user_error("family '{}' has no plans", model.settings().family);
    config_["applied"] = 1;
    for (const char* key : {"dropout", "balance", "evenly"})
      if (config_.contains(key)) config_[key] = 0;
    for (const model::arch::Parameter& p : family_->parameters(config_))
      if (p.role == kOfPlans) matrices_.push_back(p);
    for (const auto& [name, numbers] : model.state()) weights_[name] = numbers;
  }

  Sensitivity of(const ExampleBatch& batch) {
    run::Program& program = ready(batch);
    Sensitivity out;
    float loss = 0;
    program.result(model::arch::kResult)->download(&loss, sizeof loss);
    out.loss = loss;
    for (const model::arch::Parameter& p : matrices_) {
      const std::vector<float>& w = weights_.at(p.name);
      std::vector<float> gradient(w.size());
      program.result(p.name)->download(gradient.data(), std::ssize(gradient) * int64_t{sizeof(float)});
      const int64_t columns = p.shape.back().number();
      for (size_t first = 0; first < w.size(); first += columns) {
        double sum = 0;
        for (int64_t k = 0; k < columns; ++k) sum += double{w[first + k]} * gradient[first + k];
        out.of_channels.push_back(std::fabs(sum));
      }
    }
    return out;
  }

 private:
  run::Program& ready(const ExampleBatch& batch) {
    std::string key;
    for (const auto& [symbol, value] : batch.symbols) key += fmt::format(" {}={}", symbol, value);
    model::device_tensors::BoundProgram& found = programs_[key];
    if (!found.program) found = compiled(batch.symbols);
    for (const auto& [name, numbers] : batch.integers)
      found.put(name, numbers.data(), std::ssize(numbers) * int64_t{sizeof(int32_t)});
    for (const auto& [name, numbers] : batch.numbers)
      found.put(name, numbers.data(), std::ssize(numbers) * int64_t{sizeof(float)});
    const float tau = 1;
    const uint32_t seed = 0;
    const std::array<float, kClasses> bits{};
    found.put("tau", &tau, sizeof tau);
    found.put("seed", &seed, sizeof seed);
    found.put("bits", bits.data(), sizeof bits);
    found.program->run();
    return *found.program;
  }

  model::device_tensors::BoundProgram compiled(const graph::Bindings& symbols) {
    const char* loss = model_.form().by_candidates ? "loss_candidates" : "loss_pairs";
    graph::Graph g = graph::bind_symbols(family_->function(loss, config_), symbols);
    std::vector<graph::ValueId> with;
    for (const model::arch::Parameter& p : matrices_) with.push_back(g.find_input(p.name));
    const graph::ValueId value = g.results[0];
    for (const graph::ValueId v : graph::differentiate(g, value, with)) g.results.push_back(v);
    for (const model::arch::Parameter& p : matrices_) g.result_names.push_back(p.name);
    return model::device_tensors::bound_program(
        model_.engine(), g, {}, [&](const std::string& name) -> run::DeviceTensorRef* {
          const auto at = weights_.find(name);
          if (at == weights_.end()) return nullptr;
          run::DeviceTensorRef& tensor = tensors_[name];
          if (!tensor) {
            const auto p = std::ranges::find(family_parameters(), name, &model::arch::Parameter::name);
            tensor = std::make_shared<run::DeviceTensor>(model_.engine().device(), graph::Type{p->shape, {}});
            tensor->upload(at->second.data(), at->second.size() * sizeof(float));
          }
          return &tensor;
        });
  }
  const std::vector<model::arch::Parameter>& family_parameters() {
    if (parameters_.empty()) parameters_ = family_->parameters(config_);
    return parameters_;
  }

  Recommender& model_;
  model::arch::FamilyRef family_;
  graph::Config config_;
  std::vector<model::arch::Parameter> matrices_, parameters_;
  std::map<std::string, std::vector<float>> weights_;
  model::device_tensors::DeviceTensors tensors_;
  std::map<std::string, model::device_tensors::BoundProgram> programs_;
};

}  // namespace

std::vector<Sensitivity> channel_sensitivities(Recommender& model, const Split& split, std::span<const int64_t> users,
                                               uint64_t seed) {
  LossGradients gradients(model);
  std::vector<Sensitivity> out;
  for (const int64_t user : users) {
    const int64_t length = std::ssize(split.training(user));
    if (length < 2) throw user_error("a user with {} items has no loss", length);
    const UserWindow one = last_window(split, model.form(), user);
    out.push_back(gradients.of(training_batch(split, model.form(), {&one, 1}, Draws(seed, kSequenceDraws, user))));
  }
  return out;
}

}  // namespace lumen::recommend
