// Initialization of learned operand scales (graph/pass/learned_scales.h): scales of weights as formats fit them to the
// weights, scales of activations as formats fit them to the first batch.
#include "base/check.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

// `numbers` empty: the current values of the weight.
void Trainer::put_scales(const std::string& weight, std::span<const float> numbers) {
  for (const graph::LearnedScale& s : method_.scales()) {
    if (s.weight != weight) continue;
    const std::vector<float> own = numbers.empty() ? values(weight) : std::vector<float>();
    put_values(s.name, s.shape, fitted_values(s, own.empty() ? numbers : std::span<const float>(own)));
  }
}

std::vector<std::string> Trainer::activation_scales() const {
  std::vector<std::string> out;
  for (const graph::LearnedScale& s : method_.scales())
    if (s.weight.empty()) out.push_back(s.name);
  return out;
}

// 0: not known yet.
void Trainer::clear_activation_scales() {
  for (const std::string& name : activation_scales()) put_values(name, {}, std::vector<float>(1, 0.0F));
}

// Uses the first batch on the device, unless a checkpoint has scales. All ranks begin with the largest.
void Trainer::begin_activation_scales() {
  if (scales_are_known_) return;
  scales_are_known_ = true;
  std::vector<std::string> unknown;
  for (const std::string& name : activation_scales())
    if (values(name).front() == 0) unknown.push_back(name);
  if (unknown.empty()) return;
  std::vector<float> fitted(unknown.size());
  const std::optional<Error> failure = RankedStep::attempt([&] {
    const Method::Work work = method_.fits();
    const std::shared_ptr<run::Program> program = engine_.compile(work.graph, work.options);
    bind_all(*program);
    program->run();
    for (size_t i = 0; i < unknown.size(); ++i)
      program->result(unknown[i].c_str())->download(&fitted[i], sizeof(float));
  });
  if (ranked_) ranked_->agree(failure);
  if (failure) throw Error(*failure);
  if (communicator_) fitted = largest_of(*communicator_, fitted);
  for (size_t i = 0; i < unknown.size(); ++i) {
    put_values(unknown[i], {}, std::span(&fitted[i], 1));
    if (tensors_.contains(recipe::average_of(unknown[i])))
      put_values(recipe::average_of(unknown[i]), {}, std::span(&fitted[i], 1));
  }
}

// For computations before the first step.
void Trainer::know_activation_scales() {
  if (scales_are_known_ || activation_scales().empty()) return;
  const std::optional<Error> failure = RankedStep::attempt([&] { read_part(0); });
  if (ranked_) ranked_->agree(failure);
  if (failure) throw Error(*failure);
  begin_activation_scales();
}

arch::Model Trainer::read_model() const {
  arch::Model out = model();
  for (auto& [name, w] : out.weights) {
    std::map<int, std::vector<float>> fields;
    const graph::LearnedScale* scale = nullptr;
    for (const graph::LearnedScale& s : method_.scales()) {
      if (s.weight != name) continue;
      fields[s.field] = values(s.name);
      scale = &s;
    }
    if (scale) w = arch::f32_weight(w.type.shape, values_under(*scale, w.f32(), fields));
  }
  return out;
}

}  // namespace lumen::model::train
