#include "model/train/method.h"

#include "base/error.h"

namespace lumen::model {

Method::Method(const Model& model, const Recipe& recipe, bool weighted)
    : model_(model), recipe_(recipe), weighted_(weighted) {
  for (const char* function : {"loss", "token_loss"})
    if (!model.family->has_function(function))
      throw user_error("the family '{}' cannot be trained: it has no function '{}'", model.family->name(), function);
  options_.symbols = {{"B", recipe.batch}, {"T", window_length(model, recipe)}};
  options_.products = product_type(recipe.precision, model.family->library().formats());
  loss_ = weighted ? weighted_loss(model.family->function("token_loss", model.config))
                   : model.family->function("loss", model.config);
  const Scalar type = param_scalar(recipe.param_type);
  if (recipe.adapter.trains()) {
    if (!recipe.quantize.empty())
      throw Error(Exit::usage, "an adapter and [[quantize]] rules contradict each other: its model is not trained",
                  "leave one of the two away");
    changes_ = adapter_changes(model, graph::low_rank_places(loss_), recipe.adapter);
    trained_ = adapter_parameters(model, changes_, recipe.adapter);
    held_ = holding_of(trained_, type);
    loss_ = graph::add_low_rank(std::move(loss_), changes_);
  } else {
    for (const Parameter& p : model.parameters)
      if (!p.frozen) trained_.push_back(p);
    held_ = holding_of(model.parameters, type);
    // Rounding becomes part of the loss before it is differentiated: the optimizer then reads and writes the weights
    // themselves.
    roundings_ = fake_assignments(recipe.quantize, model);
    graph::assign_formats(loss_, roundings_);
    learned_ = learned_fields(loss_, roundings_);
    for (const LearnedField& f : learned_) trained_.push_back(f.parameter);
  }
  loss_ = graph::bind_symbols(loss_, options_.symbols);
}

Method::Work Method::finished(graph::Graph graph) const {
  Work work{graph::fill_norms(std::move(graph), changes_), options_};
  if (is_frozen()) work.options.assignments = stored_formats(model_, work.graph);
  return work;
}

Method::Work Method::step() const {
  return finished(training_step(loss_, trained_, recipe_.adam, held_));
}

Method::Work Method::accumulate() const {
  // Weights sum to 1 over all batches of a step.
  const int parts = weighted_ ? 1 : static_cast<int>(recipe_.accumulate);
  return finished(accumulate_step(loss_, trained_, parts, held_));
}

Method::Work Method::apply() const {
  run::CompileOptions options;
  options.symbols = options_.symbols;
  return {apply_step(trained_, recipe_.adam, held_), options};
}

Method::Work Method::evaluation() const {
  graph::Graph losses = model_.family->function("token_loss", model_.config);
  if (is_frozen()) losses = graph::add_low_rank(std::move(losses), without_dropout(changes_));
  run::CompileOptions options;
  options.symbols = options_.symbols;
  if (held_.names.empty()) {
    options.assignments = roundings_;
  } else {
    graph::assign_formats(losses, roundings_);
    losses = hold(std::move(losses), held_);
  }
  if (is_frozen()) {
    losses = graph::fill_norms(std::move(losses), changes_);
    options.assignments = stored_formats(model_, losses);
  }
  return {std::move(losses), options};
}

int64_t window_length(const Model& model, const Recipe& recipe) {
  if (recipe.length > 0) return recipe.length;
  if (!model.config.contains("context"))
    throw usage_error("the family '{}' has no key 'context': give --length", model.family->name());
  return model.integer("context");
}

}  // namespace lumen::model
