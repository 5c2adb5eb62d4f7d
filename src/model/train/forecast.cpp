#include "model/train/forecast.h"

#include <algorithm>

#include "base/error.h"
#include "model/train/method.h"

namespace lumen::model {
namespace {

constexpr int64_t kNumber = 4;               // bytes of an f32
constexpr int64_t kMostBatches = 1'000'000;  // of a step

int64_t element_bytes(const graph::Shape& shape, Scalar type) {
  const int64_t bytes = type == Scalar::f32 ? kNumber : scalar_bytes(type);
  return run::saturating_product(graph::elements(shape).number(), bytes);
}

// Without values, which need a plan.
TrainingForecast of_parameters(const Model& model, const Recipe& recipe, const Method& method) {
  TrainingForecast out;
  const Holding& held = method.held();
  const auto held_bytes = [&](const Parameter& p) {
    const bool is_held = std::find(held.names.begin(), held.names.end(), p.name) != held.names.end();
    return element_bytes(p.shape, is_held ? held.type : Scalar::f32);
  };
  for (const Parameter& p : model.parameters) {
    const auto w = model.weights.find(p.name);
    const bool packed = method.is_frozen() && w != model.weights.end();
    out.weights =
        run::saturating_sum(out.weights, packed ? static_cast<int64_t>(w->second.bytes.size()) : held_bytes(p));
  }
  int64_t trained = 0;
  for (const Parameter& p : method.trained()) {
    trained = run::saturating_sum(trained, element_bytes(p.shape, Scalar::f32));
    if (model.find(p.name) == nullptr) out.adapters = run::saturating_sum(out.adapters, held_bytes(p));
  }
  for (const graph::LowRank& c : method.changes())
    if (c.magnitudes)
      out.adapters = run::saturating_sum(
          out.adapters, element_bytes(graph::low_rank_rows(model.find(c.weight)->shape, c.rows), Scalar::f32));
  out.moments = method.optimizer().state_bytes(method.trained(), held);
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
  int64_t sum = 0;
  for (const run::MemoryNeed& need : needs()) sum = run::saturating_sum(sum, need.bytes);
  return sum;
}

run::MemoryNeeds TrainingForecast::needs() const {
  run::MemoryNeeds needs = {{adapters > 0 ? "weights, as they are" : "weights", weights}};
  if (adapters > 0) needs.push_back({"adapters", adapters});
  needs.push_back({"states of the optimizer", moments});
  needs.push_back({"gradients, summed over batches", gradients});
  needs.push_back({"values of a step, gradients among them", values});
  return needs;
}

TrainingForecast forecast_training(run::Engine& engine, const Model& model, const Recipe& recipe) {
  const Method method(model, recipe, {});
  TrainingForecast out = of_parameters(model, recipe, method);
  const auto arena = [&](const Method::Work& work) { return engine.arena_bytes(work.graph, work.options); };
  const int64_t step = recipe.accumulate == 1 ? arena(method.step())
                                              : run::saturating_sum(arena(method.accumulate()), arena(method.apply()));
  out.values = run::saturating_sum(step, arena(method.evaluation()));
  return out;
}

void require_training(run::Engine& engine, const Model& model, const Recipe& recipe, bool weights_are_there) {
  if (recipe.batch < 1 || recipe.accumulate < 1 || recipe.length < 0)
    throw usage_error("batch, accumulate and length must be at least 1");
  if (recipe.accumulate > kMostBatches)
    throw usage_error("a step of {} batches: at most {} can be accumulated", recipe.accumulate, kMostBatches);
  // What is certain without a plan is refused without one.
  require(engine, model, recipe, of_parameters(model, recipe, Method(model, recipe, {})), weights_are_there);
  require(engine, model, recipe, forecast_training(engine, model, recipe), weights_are_there);
}

}  // namespace lumen::model
