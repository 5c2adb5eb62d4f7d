#include "model/train/forecast.h"

#include <algorithm>

#include "base/error.h"
#include "model/train/method.h"
#include "model/train/recomputation.h"

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

run::MemoryNeeds needs_of(run::Engine& engine, const TrainingForecast& f, bool weights_are_there) {
  run::MemoryNeeds needs = f.needs();
  // On other devices than the processor they are needed twice until they have been copied, in different memories.
  needs[0].is_there = weights_are_there && engine.device().reads_host_memory();
  return needs;
}

std::string in_mib(int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

bool fits(run::Engine& engine, const TrainingForecast& f, bool weights_are_there) {
  try {
    engine.require_memory("training", needs_of(engine, f, weights_are_there));
  } catch (const Error& error) {
    if (error.code() != Exit::hardware) throw;
    return false;
  }
  return true;
}

// The change of a recipe that costs least and would fit: the same batch in more parts, which costs nothing but the time
// of smaller products; then computing values again; then shorter windows.
std::string cheapest_change(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form,
                            bool weights_are_there) {
  constexpr int64_t kShortest = 64;
  Recipe smaller = recipe;
  smaller.length = window_length(model, recipe);
  while (smaller.batch % 2 == 0 && smaller.accumulate * 2 <= kMostBatches) {
    smaller.batch /= 2;
    smaller.accumulate *= 2;
    if (fits(engine, forecast_training(engine, model, smaller, form, weights_are_there), weights_are_there))
      return fmt::format("--batch {} --accumulate {} trains the same and fits", smaller.batch, smaller.accumulate);
  }
  if (recipe.recompute == "none") {
    smaller.recompute = "layers";
    if (fits(engine, forecast_training(engine, model, smaller, form, weights_are_there), weights_are_there))
      return fmt::format("--batch {} --accumulate {} --recompute layers trains the same, slower, and fits",
                         smaller.batch, smaller.accumulate);
  }
  while (smaller.length / 2 >= kShortest) {
    smaller.length /= 2;
    if (fits(engine, forecast_training(engine, model, smaller, form, weights_are_there), weights_are_there))
      return fmt::format("--batch {} --accumulate {} --length {}{} fits", smaller.batch, smaller.accumulate,
                         smaller.length, recipe.recompute == "none" ? " --recompute layers" : "");
  }
  return recipe.adapter.trains() ? "choose a smaller model, or one in a smaller format"
                                 : "train an adapter beside the weights (--lora), or choose a smaller model";
}

void require(run::Engine& engine, const Model& model, const Recipe& recipe, const TrainingForecast& f,
             bool weights_are_there, const std::string& hint) {
  engine.require_memory(fmt::format("training of '{}' with batches of {} windows of {} tokens", model.name,
                                    recipe.batch, window_length(model, recipe)),
                        needs_of(engine, f, weights_are_there), hint);
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
  needs.push_back({"values of an evaluation", evaluation});
  return needs;
}

TrainingForecast forecast_training(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form,
                                   bool weights_are_there) {
  const Method method(model, recipe, form);
  TrainingForecast out = of_parameters(model, recipe, method);
  const auto arena = [&](const Method::Work& work) { return engine.arena_bytes(work.graph, work.options); };
  const auto recomputing = [&](Method::Work work) {
    int64_t others = 0;
    if (recipe.recompute == "auto")
      others = run::saturating_sum(beside_values(engine, method, recipe),
                                   run::saturating_sum(weights_are_there ? 0 : out.weights, out.adapters));
    work.options.recompute = recomputation(recipe.recompute, engine.device(), others);
    return work;
  };
  const int64_t values = arena(recomputing(recipe.accumulate == 1 ? method.step() : method.accumulate()));
  // What finds room where a step's values are takes none of its own.
  const auto beside = [&](const Method::Work& work) {
    const int64_t bytes = arena(work);
    return bytes <= values ? 0 : bytes;
  };
  out.values = recipe.accumulate == 1 ? values : run::saturating_sum(values, beside(method.apply()));
  out.evaluation = beside(method.evaluation());
  if (const Objective* objective = method.objective()) {
    out.evaluation = run::saturating_sum(out.evaluation, beside(method.objective_loss()));
    if (method.is_frozen() && objective->reads(kReference))
      out.evaluation = run::saturating_sum(out.evaluation, beside(method.reference()));
  }
  out.operations = method.operations();
  for (const Parameter& p : method.trained()) out.trained += p.count();
  return out;
}

std::string plan_text(const TrainingForecast& f, double ceiling) {
  std::string text;
  const auto line = [&](const std::string& what, const std::string& value) {
    text += fmt::format("{:<40} {:>14}\n", what, value);
  };
  for (const run::MemoryNeed& need : f.needs())
    if (need.bytes > 0) line(need.what, in_mib(need.bytes));
  line("together", in_mib(f.total()));
  line("numbers that are trained", fmt::format("{}", f.trained));
  line("operations of a step", fmt::format("{:.3g}", f.operations));
  if (ceiling > 0) line("time of a step at the measured ceiling", fmt::format("{:.3g} s", f.operations / ceiling));
  return text;
}

void require_training(run::Engine& engine, const Model& model, const Recipe& recipe, bool weights_are_there,
                      BatchForm form) {
  if (recipe.batch < 1 || recipe.accumulate < 1 || recipe.length < 0)
    throw usage_error("batch, accumulate and length must be at least 1");
  if (recipe.accumulate > kMostBatches)
    throw usage_error("a step of {} batches: at most {} can be accumulated", recipe.accumulate, kMostBatches);
  // What is certain without a plan is refused without one.
  require(engine, model, recipe, of_parameters(model, recipe, Method(model, recipe, form)), weights_are_there,
          recipe.adapter.trains() ? "choose a smaller model, or one in a smaller format"
                                  : "train an adapter beside the weights (--lora), or choose a smaller model");
  const TrainingForecast f = forecast_training(engine, model, recipe, form, weights_are_there);
  if (fits(engine, f, weights_are_there)) return;
  require(engine, model, recipe, f, weights_are_there, cheapest_change(engine, model, recipe, form, weights_are_there));
}

}  // namespace lumen::model
