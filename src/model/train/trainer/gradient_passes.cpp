// Gradients of a batch by one program, or layer by layer (step_kinds.h).
#include <cmath>

#include "base/check.h"
#include "model/train/trainer/step_kinds.h"

namespace lumen::model::train {

void Trainer::WholePass::compile(Sharding sharding) {
  if (t_.recipe_.accumulate == 1) {
    batch_ = t_.compile(t_.recomputing(t_.method_.step()));
  } else if (sharding == Sharding::gradients) {
    batch_ = t_.compile(t_.recomputing(t_.method_.gradients()));
  } else {
    batch_ = t_.compile(t_.recomputing(t_.method_.accumulate()));
    if (sharding == Sharding::none) apply_ = t_.compile(t_.method_.apply());
  }
}

void Trainer::WholePass::compile_before_updates() {
  batch_ = t_.compile(t_.recomputing(t_.method_.gradients_apart()));
}

void Trainer::WholePass::run(Step& step, int64_t, std::optional<Error>*) {
  batch_->run();
  step.loss += t_.scalar(*batch_, "loss") * (1.0 / t_.method_.parts());
  for (auto& [name, value] : step.metrics) value += t_.scalar(*batch_, name.c_str()) / t_.recipe_.accumulate;
}

void Trainer::WholePass::run_among_ranks(Step& step, int64_t part, std::optional<Error>* failure) {
  if (t_.tensor_parts_)
    run(step, part, nullptr);  // where it fails, others wait in an exchange
  else if (!*failure)
    *failure = RankedStep::attempt([&] { run(step, part, nullptr); });
}

void Trainer::WholePass::reduce() {
  t_.ranked_->reduce(*batch_);
}

double Trainer::WholePass::finish() {
  if (apply_) apply_->run();
  return t_.scalar(last(), "norm");
}

void Trainer::WholePass::update_among_ranks(Step& step) {
  t_.ranked_->share_sums();
  if (t_.tensor_parts_)
    apply_->run();
  else
    t_.ranked_->agree(RankedStep::attempt([&] { apply_->run(); }));  // then bounds of weights are those of all ranks
  step.norm = t_.scalar(*apply_, "norm");
  t_.require_finite_step(step);
}

std::vector<std::string> Trainer::WholePass::broken() {
  std::vector<std::string> out;
  for (const arch::Parameter& p : t_.method_.trained())
    if (!std::isfinite(t_.scalar(last(), (recipe::kSquares + p.name).c_str()))) out.push_back(p.name);
  return out;
}

float Trainer::WholePass::clip(double) {
  return t_.scalar(*batch_, recipe::kClip);
}

run::Program* Trainer::WholePass::evaluation() {
  if (!t_.evaluate_) t_.evaluate_ = t_.compile(t_.method_.evaluation());
  return t_.evaluate_.get();
}

std::vector<run::Program*> Trainer::WholePass::bound() const {
  std::vector<run::Program*> out;
  for (run::Program* program : {batch_.get(), apply_.get()})
    if (program) out.push_back(program);
  return out;
}

void Trainer::WholePass::add_memory(Held*, Held*, Held* values) const {
  for (const run::Program* program : bound()) values->bytes += program->own_bytes();
}

std::string Trainer::WholePass::explain() const {
  return batch_->explain() + (apply_ ? apply_->explain() : "");
}

Trainer::LayerPass::LayerPass(Trainer& t, LayerPlan plan, std::shared_ptr<ParameterStore> store,
                              std::unique_ptr<TensorPager> kept)
    : GradientPass(t),
      layers_(
          t.engine_, t.method_, std::move(plan), std::move(store),
          [&t](const std::string& name, const graph::Type& type) { return t.tensor(name, type); }, std::move(kept)) {}

void Trainer::LayerPass::run(Step& step, int64_t part, std::optional<Error>* failure) {
  step.loss += layers_.run(part == 0, failure) * (1.0 / t_.method_.parts());
}

void Trainer::LayerPass::run_among_ranks(Step& step, int64_t part, std::optional<Error>* failure) {
  if (!t_.has_parts_of_parameters()) t_.ranked_->agree(*failure);
  t_.ranked_->store()->begin_batch(part + 1 == t_.given_.accumulate);
  run(step, part, failure);  // an exception ends all
}

void Trainer::LayerPass::update_among_ranks(Step& step) {
  step.norm = t_.ranked_->norm();
  t_.require_finite_step(step);
  t_.ranked_->agree(RankedStep::attempt([&] { t_.update(step.norm); }));
}

std::vector<std::string> Trainer::LayerPass::broken() {
  if (t_.ranked_) return t_.ranked_->broken();  // sums over ranks are in its store
  std::vector<std::string> out;
  for (const arch::Parameter& p : t_.method_.trained())
    if (!std::isfinite(layers_.square(p.name))) out.push_back(p.name);
  return out;
}

float Trainer::LayerPass::clip(double norm) {
  const float exact = norm;  // sums are f32
  return clip_of(exact, t_.recipe_.optimizer.max_norm);
}

void Trainer::LayerPass::add_memory(Held* trained, Held* gradients, Held* values) const {
  trained->bytes += layers_.store().parameter_bytes();
  gradients->bytes += layers_.store().gradient_bytes();
  values->bytes += layers_.own_bytes() + layers_.between_bytes();
}

}  // namespace lumen::model::train
