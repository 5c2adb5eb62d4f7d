#include "model/train/forecast.h"

#include <algorithm>

#include "base/error.h"
#include "model/train/learned.h"
#include "model/train/optimizer.h"

namespace lumen::model {
namespace {

constexpr int64_t kNumber = 4;               // bytes of an f32
constexpr int64_t kMostBatches = 1'000'000;  // of a step

std::vector<Parameter> trained_of(const Model& model) {
  std::vector<Parameter> trained = model.parameters;
  std::erase_if(trained, [](const Parameter& p) { return p.frozen; });
  return trained;
}

// Without values, which need a plan.
TrainingForecast of_parameters(const Model& model, const Recipe& recipe) {
  TrainingForecast out;
  int64_t trained = 0;
  for (const Parameter& p : model.parameters) {
    const int64_t bytes = run::saturating_product(p.count(), kNumber);
    out.weights = run::saturating_sum(out.weights, bytes);
    if (!p.frozen) trained = run::saturating_sum(trained, bytes);
  }
  out.moments = Optimizer(model.family->library(), recipe.optimizer).state_bytes(trained_of(model));
  // A step of one batch has its gradients among its values; no fewer bytes for that.
  out.gradients = recipe.accumulate > 1 ? trained : 0;
  out.values = recipe.accumulate > 1 ? 0 : trained;
  return out;
}

void require(run::Engine& engine, const Model& model, const Recipe& recipe, TrainingForecast f,
             bool weights_are_there) {
  run::MemoryNeeds needs = f.needs();
  // On other devices than the processor they are needed twice until they have been copied, in different memories.
  needs[0].is_there = weights_are_there && engine.device().reads_host_memory();
  engine.require_memory(fmt::format("training of '{}' with batches of {} windows of {} tokens", model.name,
                                    recipe.batch, recipe.length == 0 ? model.integer("context") : recipe.length),
                        needs,
                        "choose a smaller --batch, --length or model; --accumulate makes up for smaller batches");
}

}  // namespace

int64_t TrainingForecast::total() const {
  return run::saturating_sum(run::saturating_sum(weights, moments), run::saturating_sum(gradients, values));
}

run::MemoryNeeds TrainingForecast::needs() const {
  return {{"weights (f32)", weights},
          {"states of the optimizer", moments},
          {"gradients, summed over batches", gradients},
          {"values of a step, gradients among them", values}};
}

TrainingForecast forecast_training(run::Engine& engine, const Model& model, const Recipe& recipe) {
  TrainingForecast out = of_parameters(model, recipe);
  run::CompileOptions options;
  options.symbols = {{"B", recipe.batch}, {"T", recipe.length == 0 ? model.integer("context") : recipe.length}};
  options.products = product_type(recipe.precision, model.family->library().formats());
  std::vector<Parameter> trained = trained_of(model);
  const Optimizer optimizer(model.family->library(), recipe.optimizer);
  graph::Graph loss = model.family->function("loss", model.config);
  const auto assignments = fake_assignments(recipe.quantize, model);
  graph::assign_formats(loss, assignments);
  for (const LearnedField& f : learned_fields(loss, assignments)) trained.push_back(f.parameter);
  loss = graph::bind_symbols(loss, options.symbols);
  const int64_t step = engine.arena_bytes(recipe.accumulate == 1 ? training_step(std::move(loss), trained, optimizer)
                                                                 : accumulate_step(std::move(loss), trained, 2),
                                          options);
  run::CompileOptions evaluation;
  evaluation.assignments = assignments;
  evaluation.symbols = options.symbols;
  out.values =
      run::saturating_sum(step, engine.arena_bytes(model.family->function("token_loss", model.config), evaluation));
  return out;
}

void require_training(run::Engine& engine, const Model& model, const Recipe& recipe, bool weights_are_there) {
  if (recipe.batch < 1 || recipe.accumulate < 1 || recipe.length < 0)
    throw usage_error("batch, accumulate and length must be at least 1");
  if (recipe.accumulate > kMostBatches)
    throw usage_error("a step of {} batches: at most {} can be accumulated", recipe.accumulate, kMostBatches);
  // What is certain without a plan is refused without one.
  require(engine, model, recipe, of_parameters(model, recipe), weights_are_there);
  require(engine, model, recipe, forecast_training(engine, model, recipe), weights_are_there);
}

}  // namespace lumen::model
