#include "model/train/trainer/forecast.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "model/recipe/groups.h"
#include "model/train/method/method.h"
#include "model/train/method/recomputation.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/offload.h"
#include "model/train/ranks/rank_forecast.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {
namespace {

constexpr int64_t kNumber = 4;               // bytes of an f32
constexpr int64_t kMostBatches = 1'000'000;  // of a step

int64_t element_bytes(const graph::Shape& shape, Scalar type) {
  const int64_t bytes = type == Scalar::f32 ? kNumber : scalar_bytes(type);
  return run::saturating_product(graph::elements(shape).number(), bytes);
}

// Everything except values, which need a plan.
TrainingForecast of_parameters(const arch::Model& model, const recipe::Recipe& recipe, const Method& method,
                               const arch::Model* teacher, const OffloadForecast& offload,
                               const std::optional<RankForecast>& rank) {
  TrainingForecast out;
  out.teacher = teacher ? teacher->weight_bytes() : 0;
  const recipe::Holding& held = method.held();
  const auto held_bytes = [&](const arch::Parameter& p) {
    return held.has(p.name) && held.type.format ? graph::byte_size(held.type_of(p))
                                                : element_bytes(p.shape, held.type_of(p).element.scalar);
  };
  const auto is_split = [&](const std::string& name) {
    return method.partition() && method.partition()->inputs.contains(name);
  };
  for (const arch::Parameter& p : model.parameters) {
    const auto w = model.weights.find(p.name);
    const bool packed = method.is_frozen() && w != model.weights.end();
    const int64_t whole = packed ? byte_size(w->second.type) : held_bytes(p);
    out.weights = run::saturating_sum(out.weights, is_split(p.name) ? whole / method.partition()->ranks : whole);
  }
  int64_t trained = 0;
  for (const arch::Parameter& p : method.trained_here()) {
    trained = run::saturating_sum(trained, element_bytes(p.shape, Scalar::f32));
    if (model.find(p.name) == nullptr) out.adapters = run::saturating_sum(out.adapters, held_bytes(p));
  }
  for (const graph::LowRank& c : method.changes())
    if (c.magnitudes)
      out.adapters = run::saturating_sum(
          out.adapters, element_bytes(graph::low_rank_rows(model.find(c.weight)->shape, c.rows), Scalar::f32));
  out.moments = method.optimizer().state_bytes(method.trained_here(), held);
  if (offload.any()) {
    out.moments = run::saturating_sum(out.moments - offload.states, offload.slots);
    out.states_visit = offload.outside > 0;
    out.offloaded = run::saturating_sum(offload.outside, offload.layers.outside);
    out.in_file = offload.in_file;
  }
  // With one batch per step the gradients are among the step's values, unless updates run after it; then values are no
  // smaller.
  const bool apart = recipe.accumulate > 1 || offload.any();
  out.gradients = apart ? trained : 0;
  if (const OffloadForecast::Layers& layers = offload.layers; layers.any()) {
    out.weights = run::saturating_sum(out.weights - layers.parameters, layers.parameter_slots);
    out.gradients = run::saturating_sum(out.gradients - layers.gradients, layers.gradient_slots);
  }
  out.values = apart ? 0 : trained;
  if (rank) {
    out.moments = rank->states;
    out.states_visit = rank->outside.states > 0;
    out.offloaded = rank->outside.all();
    out.in_file = rank->outside.in_file;
    out.exchanges = rank->exchanges;
    out.weights = out.weights - rank->in_parts + rank->parameters + rank->whole_parameters;
    out.gradients = rank->sums + rank->whole_gradients;
  }
  return out;
}

std::optional<RankForecast> of_rank(const run::Device& device, const arch::Model& model, const Method& method,
                                    const recipe::Recipe& recipe, int ranks) {
  const int shares = ranks / recipe.tensor_parallel;
  if (shares == 1) return std::nullopt;
  return forecast_rank(device, model, method, recipe, shares);
}

run::MemoryNeeds needs_of(run::Engine& engine, const TrainingForecast& f, bool weights_are_there) {
  run::MemoryNeeds needs = f.needs();
  // On devices other than the processor weights are needed twice until they are copied, in different memories.
  needs[0].is_there = weights_are_there && engine.device().reads_host_memory();
  return needs;
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

// The least of 1 .. `most` for which `holds`, which must be monotone; 0: not even for `most`.
int64_t least_that(int64_t most, const std::function<bool(int64_t)>& holds) {
  if (most < 1 || !holds(most)) return 0;
  int64_t fails = 0, good = most;
  while (good - fails > 1) {
    const int64_t middle = fails + (good - fails) / 2;
    (holds(middle) ? good : fails) = middle;
  }
  return good;
}

// The cheapest change of the recipe that would fit: first the same batch in more parts, which costs only the time of
// smaller products; then recomputation; then shorter windows. A try plans whole steps, so a bisection keeps tries few.
// Settings whose lower bound already exceeds the memory are not planned. `whole`: the needs of the unchanged recipe, as
// far as its step.
std::string cheapest_change(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                            const TrainingForecast& whole, BatchForm form, bool weights_are_there,
                            const arch::Model* teacher, int ranks) {
  constexpr int64_t kShortest = 64;
  const auto would_fit = [&](const recipe::Recipe& r) {
    const auto holds = [&](const TrainingForecast& f) { return fits(engine, f, weights_are_there); };
    const TrainingOutline outline(engine, model, r, form, teacher, ranks);
    return holds(outline.forecast(weights_are_there, holds));
  };
  int64_t halvings = 0;
  for (int64_t batch = recipe.batch, parts = recipe.accumulate; batch % 2 == 0 && parts * 2 <= kMostBatches;) {
    batch /= 2;
    parts *= 2;
    ++halvings;
  }
  const auto in_parts = [&](int64_t times) {
    recipe::Recipe r = recipe;
    r.length = window_length(model, recipe);
    r.batch >>= times;
    r.accumulate <<= times;
    return r;
  };
  // Half a batch has at least half of the values.
  const int64_t of_batch = whole.values - certain_training(engine, model, recipe, form, teacher, ranks).values;
  const auto may_fit = [&](int64_t times) {
    TrainingForecast least = certain_training(engine, model, in_parts(times), form, teacher, ranks);
    least.values = run::saturating_sum(least.values, std::max<int64_t>(0, of_batch) >> times);
    return fits(engine, least, weights_are_there);
  };
  const auto parts_fit = [&](int64_t n) { return may_fit(n) && would_fit(in_parts(n)); };
  if (const int64_t times = least_that(halvings, parts_fit); times > 0) {
    const recipe::Recipe r = in_parts(times);
    return fmt::format("--batch {} --accumulate {} trains the same and fits", r.batch, r.accumulate);
  }
  recipe::Recipe smaller = in_parts(halvings);
  const bool again = recipe.recompute == "none" || recipe.recompute == "maps";
  if (again) {
    smaller.recompute = "layers";
    if (would_fit(smaller))
      return fmt::format("--batch {} --accumulate {} --recompute layers trains the same, slower, and fits",
                         smaller.batch, smaller.accumulate);
  }
  int64_t shorter = 0;
  while (smaller.length >> (shorter + 1) >= kShortest) ++shorter;
  const auto of_length = [&](int64_t times) {
    recipe::Recipe r = smaller;
    r.length >>= times;
    return r;
  };
  if (const int64_t times = least_that(shorter, [&](int64_t n) { return would_fit(of_length(n)); }); times > 0)
    return fmt::format("--batch {} --accumulate {} --length {}{} fits", smaller.batch, smaller.accumulate,
                       of_length(times).length, again ? " --recompute layers" : "");
  return recipe.adapter.trains() ? "choose a smaller model, or one in a smaller format"
                                 : "train an adapter instead of the weights (--lora), or choose a smaller model";
}

void require(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe, const TrainingForecast& f,
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
  if (teacher > 0) needs.push_back({"weights of the teacher", teacher});
  if (adapters > 0) needs.push_back({"adapters", adapters});
  needs.push_back({states_visit ? "states of the optimizer, three groups" : "states of the optimizer", moments});
  needs.push_back({offloaded > 0 ? "gradients" : "gradients, summed over batches", gradients});
  needs.push_back({offloaded > 0 ? "values of a step" : "values of a step, gradients among them", values});
  needs.push_back({"values of an evaluation", evaluation});
  if (exchanges > 0) needs.push_back({"exchanges with other ranks", exchanges});
  return needs;
}

namespace {

// Where data that steps by layers move, or optimizer states, are stored.
TrainingForecast::Visiting visiting(const OffloadForecast& offload, const std::optional<RankForecast>& rank) {
  if (rank) {
    const RankForecast::Outside& o = rank->outside;
    return {o.states_held, o.parameters, o.gradients, o.kept, rank->by_layers(), rank->computes_again};
  }
  const OffloadForecast::Layers& l = offload.layers;
  return {offload.states, l.parameters, l.gradients, l.kept, l.any(), l.computes_again};
}

}  // namespace

struct TrainingOutline::Parts {
  run::Engine& engine;
  const arch::Model& model;
  const arch::Model* teacher;
  recipe::Recipe recipe;
  Method method;
  std::optional<RankForecast> rank;
  OffloadForecast offload;
  TrainingForecast certain;

  Parts(run::Engine& e, const arch::Model& m, recipe::Recipe r, BatchForm form, const arch::Model* t, int ranks)
      : engine(e), model(m), teacher(t), recipe(std::move(r)), method(model, recipe, form, teacher) {
    rank = of_rank(engine.device(), model, method, recipe, ranks);
    if (!rank) offload = forecast_offload(engine.device(), model, method, recipe);
    certain = of_parameters(model, recipe, method, teacher, offload, rank);
    certain.visiting = visiting(offload, rank);
  }
};

TrainingOutline::TrainingOutline(run::Engine& engine, const arch::Model& model, recipe::Recipe recipe, BatchForm form,
                                 const arch::Model* teacher, int ranks)
    : parts_(std::make_unique<Parts>(engine, model, std::move(recipe), form, teacher, ranks)) {}

TrainingOutline::~TrainingOutline() = default;

const TrainingForecast& TrainingOutline::certain() const {
  return parts_->certain;
}

TrainingForecast TrainingOutline::forecast(bool weights_are_there,
                                           const std::function<bool(const TrainingForecast&)>& go_on) const {
  run::Engine& engine = parts_->engine;
  const arch::Model& model = parts_->model;
  const recipe::Recipe& recipe = parts_->recipe;
  const Method& method = parts_->method;
  const std::optional<RankForecast>& rank = parts_->rank;
  const OffloadForecast& offload = parts_->offload;
  TrainingForecast out = parts_->certain;
  if (go_on && !go_on(out)) return out;
  const auto arena = [&](const Method::Work& work) { return engine.arena_bytes(work.graph, work.options); };
  const auto recomputing = [&](Method::Work work) {
    int64_t others = 0;
    if (recipe.recompute == "auto")
      others = run::saturating_sum(beside_offloaded(engine, model, method, recipe),
                                   run::saturating_sum(weights_are_there ? 0 : out.weights, out.adapters));
    recompute(&work, recipe.recompute, engine.device(), others);
    return work;
  };
  const bool whole = recipe.accumulate == 1 && !offload.any();
  const auto largest = [&](const std::vector<graph::Graph>& graphs, const run::CompileOptions& options) {
    int64_t most = 0;
    for (const graph::Graph& g : graphs) most = std::max(most, arena({g, options}));
    return most;
  };
  const bool by_layers = rank && rank->by_layers();
  const bool has_apply = rank && rank->sharding != Sharding::none;
  const auto step = [&] {
    if (rank && rank->sharding == Sharding::gradients) return method.gradients();
    return whole ? method.step() : offload.any() ? method.gradients_apart() : method.accumulate();
  };
  const int64_t values = by_layers              ? largest(rank->step, part_options(method))
                         : offload.layers.any() ? largest(offload.layers.step, part_options(method))
                                                : arena(recomputing(step()));
  // A program that fits in the arena of a step's values takes no memory of its own.
  const auto beside = [&](const Method::Work& work) {
    const int64_t bytes = arena(work);
    return bytes <= values ? 0 : bytes;
  };
  out.values = run::saturating_sum(values, by_layers ? rank->between : offload.layers.between);
  out.values = run::saturating_sum(out.values, by_layers ? rank->kept_slots : offload.layers.kept_slots);
  if (has_apply) {
    // The update does not share the step's memory.
    if (!rank->updates.empty())
      for (const graph::Graph& g : rank->updates) out.values = run::saturating_sum(out.values, arena({g, {}}));
    else if (!rank->updated.empty())
      out.values = run::saturating_sum(out.values, arena(method.apply(rank->updated)));
  } else if (by_layers) {
    for (const graph::Graph& g : rank->updates) out.values = run::saturating_sum(out.values, beside({g, {}}));
  } else if (!whole && !offload.any()) {
    out.values = run::saturating_sum(values, beside(method.apply()));
  }
  for (const graph::Graph& update : offload.updates) out.values = run::saturating_sum(out.values, beside({update, {}}));
  out.evaluation = 0;
  if (go_on && !go_on(out)) return out;
  for (const graph::Graph& part : by_layers ? rank->evaluation : offload.layers.evaluation)
    out.evaluation = run::saturating_sum(out.evaluation, beside({part, method.evaluation().options}));
  if (!offload.layers.any() && !by_layers) out.evaluation = beside(method.evaluation());
  if (recipe.eval_kl) out.evaluation = run::saturating_sum(out.evaluation, beside(method.divergence()));
  if (const recipe::Objective* objective = method.objective()) {
    out.evaluation = run::saturating_sum(out.evaluation, beside(method.objective_loss()));
    if (method.is_frozen() && objective->reads(recipe::kReference))
      out.evaluation = run::saturating_sum(out.evaluation, beside(method.reference()));
  }
  if (!(recipe.eval_tasks.empty() && recipe.samples.empty()) && Trainer::snapshot_copies(engine, recipe)) {
    int64_t copy = method.is_frozen() ? out.weights : 0;
    for (const arch::Parameter& p : model.parameters)
      if (!method.is_frozen()) copy = run::saturating_sum(copy, element_bytes(p.shape, Scalar::f32));
    out.evaluation = run::saturating_sum(out.evaluation, copy);
  }
  out.operations = method.operations();
  out.trained = recipe::moving_count(method.trained());
  if (method.partition()) {
    out.partition = method.partition_text();
    out.operations /= method.partition()->ranks;
  }
  return out;
}

TrainingForecast forecast_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                   BatchForm form, bool weights_are_there, const arch::Model* teacher, int ranks) {
  return TrainingOutline(engine, model, recipe, form, teacher, ranks).forecast(weights_are_there);
}

TrainingForecast certain_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                  BatchForm form, const arch::Model* teacher, int ranks) {
  return TrainingOutline(engine, model, recipe, form, teacher, ranks).certain();
}

std::string plan_text(const TrainingForecast& f, double ceiling) {
  std::string text;
  const auto line = [&](const std::string& what, const std::string& value) {
    text += fmt::format("{:<40} {:>14}\n", what, value);
  };
  for (const run::MemoryNeed& need : f.needs())
    if (need.bytes > 0) line(need.what, size_text(need.bytes));
  line("together", size_text(f.total()));
  if (!f.partition.empty()) text += f.partition + "\n";
  if (f.offloaded > 0) line(f.in_file ? "in files" : "in memory of the host", size_text(f.offloaded));
  if (f.residual_base > 0) line("before that, to change the base", size_text(f.residual_base));
  line("numbers that are trained", fmt::format("{}", f.trained));
  line("operations of a step", fmt::format("{:.3g}", f.operations));
  if (ceiling > 0) line("time of a step at the measured ceiling", fmt::format("{:.3g} s", f.operations / ceiling));
  return text;
}

void require_certain_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                              bool weights_are_there, BatchForm form, const arch::Model* teacher, int ranks) {
  if (recipe.batch < 1 || recipe.accumulate < 1 || recipe.length < 0)
    throw usage_error("batch, accumulate and length must be at least 1");
  if (recipe.accumulate > kMostBatches)
    throw usage_error("a step of {} batches: at most {} can be accumulated", recipe.accumulate, kMostBatches);
  require(engine, model, recipe, certain_training(engine, model, recipe, form, teacher, ranks), weights_are_there,
          recipe.adapter.trains() ? "choose a smaller model, or one in a smaller format"
                                  : "train an adapter instead of the weights (--lora), or choose a smaller model");
}

TrainingForecast require_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                  bool weights_are_there, BatchForm form, const arch::Model* teacher, int ranks) {
  require_certain_training(engine, model, recipe, weights_are_there, form, teacher, ranks);
  const auto holds = [&](const TrainingForecast& f) { return fits(engine, f, weights_are_there); };
  TrainingForecast f = TrainingOutline(engine, model, recipe, form, teacher, ranks).forecast(weights_are_there, holds);
  if (!holds(f))
    require(engine, model, recipe, f, weights_are_there,
            cheapest_change(engine, model, recipe, f, form, weights_are_there, teacher, ranks));
  return f;
}

}  // namespace lumen::model::train
