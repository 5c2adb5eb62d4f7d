#include "model/train/method/method.h"

#include <algorithm>

#include "base/error.h"
#include "graph/grad/work.h"
#include "model/arch/function.h"
#include "model/recipe/objective/teacher.h"
#include "model/train/method/lora.h"

namespace lumen::model::train {
namespace {

// Predicted scales need bounds of the weights that the optimizer changes.
recipe::OptimizerSettings with_bounds(const recipe::Recipe& recipe) {
  recipe::OptimizerSettings out = recipe.optimizer;
  out.held = {recipe.param_type, recipe.param_rounding, recipe.param_compensation};
  if (recipe.products.weight_scale == "predicted") out.bound_every = recipe.products.rescale_every;
  return out;
}

}  // namespace

Method::Method(const arch::Model& model, const recipe::Recipe& recipe, BatchForm form, const arch::Model* teacher)
    : model_(model),
      recipe_(recipe),
      form_(form),
      teacher_(teacher),
      optimizer_(model.family->library(), with_bounds(recipe)) {
  if (teacher) recipe::require_teacher(model, *teacher);
  for (const char* function : {"loss", "token_loss"})
    if (!model.family->has_function(function))
      throw user_error("the family '{}' cannot be trained: it has no function '{}'", model.family->name(), function);
  if (!recipe.objective.name.empty()) objective_.emplace(model.family->library(), recipe.objective);
  if (!recipe.objective.teacher.empty() && (!objective_ || !objective_->reads("teacher")) && !recipe.eval_kl)
    throw Error(Exit::usage, fmt::format("--teacher {}: nothing learns from a teacher here", recipe.objective.teacher),
                "--objective distillation does; --eval-kl measures how far the model is from it");
  if (recipe.eval_kl && !recipe.adapter.trains() && !teacher)
    throw Error(Exit::usage, "--eval-kl: there is no reference that the model could have gone from",
                "--teacher MODEL names one; with an adapter (--lora) it is the model without the adapter");
  if (recipe.eval_kl && !model.family->has_function("forward"))
    throw user_error("--eval-kl: the family '{}' has no function 'forward'", model.family->name());
  if (objective_ && !model.family->has_function(objective_->function()))
    throw user_error("the family '{}' cannot be trained for '{}': it has no function '{}'", model.family->name(),
                     objective_->name(), objective_->function());
  options_.symbols = {{"B", recipe.batch}, {"T", window_length(model, recipe)}};
  options_.products = product_type(recipe, model.family->library().formats());
  options_.recompute.kept = recipe::encodable("memory.kept", recipe.kept, formats());
  // With packed weights kernels may round the activations, unless f32 was asked for.
  options_.exact = (recipe.adapter.trains() || optimizer_.held().element.format) && !has_short_products();
  const graph::Graph author = this->author();
  if (recipe.adapter.trains()) {
    if (recipe.products.learns())
      throw Error(Exit::usage, "an adapter has no place for scales of operands that are learned",
                  "[products] with fitted or delayed scales goes with it");
    if (!recipe.quantize.empty())
      throw Error(Exit::usage, "an adapter and [[quantize]] rules contradict each other: its model is not trained",
                  "leave out one of the two");
    changes_ = adapter_changes(model, graph::low_rank_places(apart(author)), recipe.adapter);
    trained_ = adapter_parameters(model, changes_, recipe.adapter);
    require_members(recipe.groups, trained_);
    trained_ = grouped(std::move(trained_), recipe.groups);
    held_ = holding_of(trained_, optimizer_.held());
    if (recipe.ship.ships()) {
      shipping_.emplace(model, recipe, changes_);
      for (const arch::Parameter& p : shipping_->parameters()) trained_.push_back(p);
      shipping_->hold_still(trained_);
    }
    loss_ = loss_of(author, nullptr);
  } else {
    for (const arch::Parameter& p : model.parameters)
      if (!p.frozen) trained_.push_back(p);
    // Fake quantization becomes part of the loss before differentiation, so the optimizer reads and writes the
    // unrounded weights.
    roundings_ = fake_assignments(recipe.quantize, model);
    loss_ = loss_of(author, &scales_);
    learned_ = learned_fields(loss_, roundings_);
    std::vector<arch::Parameter> fields;
    for (const LearnedField& f : learned_) fields.push_back(f.parameter);
    std::vector<arch::Parameter> all = trained_;
    all.insert(all.end(), fields.begin(), fields.end());
    const std::vector<arch::Parameter> scales = scale_parameters();
    all.insert(all.end(), scales.begin(), scales.end());
    require_members(recipe.groups, all);
    trained_ = grouped(std::move(trained_), recipe.groups);
    held_ = holding_of(trained_, optimizer_.held());
    for (arch::Parameter& p : grouped(std::move(fields), recipe.groups)) trained_.push_back(std::move(p));
    // A scale frozen by a group is still saved in checkpoints: it does not follow from the weights.
    for (const arch::Parameter& p : scales) {
      const std::vector<arch::Parameter> moving = grouped({p}, recipe.groups);
      trained_.push_back(moving.empty() ? p : moving.front());
      if (moving.empty()) trained_.back().rate = 0;
    }
  }
  if (recipe.tensor_parallel > 1) partition_tensors();
}

graph::Graph Method::author() const {
  return function_of(model_, objective_ ? objective_->function() : form_.weights ? "token_loss" : "loss");
}

std::vector<arch::Parameter> Method::scale_parameters() const {
  std::vector<arch::Parameter> out;
  for (const graph::LearnedScale& s : scales_) {
    arch::Parameter p;
    p.name = s.name;
    p.shape = s.shape;
    p.role = recipe::kRoleOperandScale;
    p.decays = false;
    out.push_back(std::move(p));
  }
  return out;
}

// Whether a scale belongs to a weight of this model, not of a teacher.
bool Method::learns_scale_of(const std::string& scale) const {
  return model_.find(scale.substr(0, scale.rfind('.'))) != nullptr;
}

graph::Graph Method::with_scales(graph::Graph g) const {
  if (scales_.empty()) return g;
  graph::inline_calls(g);
  std::vector<graph::LearnedScale> known;
  return graph::learn_scales(g, options_.products, recipe_.products.learns_attention(), &known,
                             [&](const std::string& scale) {
                               return std::any_of(scales_.begin(), scales_.end(), [&](const graph::LearnedScale& s) {
                                 return s.name == scale || s.name.starts_with(scale + ".");
                               });
                             });
}

graph::Graph Method::loss_of(const graph::Graph& author, std::vector<graph::LearnedScale>* scales) const {
  const std::optional<graph::Graph> theirs = teacher();
  graph::Stage objective;
  if (objective_)
    objective = [&](graph::Graph g) {
      return objective_->over(std::move(g), form_.weights, theirs ? &*theirs : nullptr);
    };
  else if (form_.weights)
    objective = recipe::weighted_loss;
  if (!scales || !recipe_.products.learns())
    return graph::loss_graph(author, changes_of(author), options_.symbols, objective);
  // Operands pass through formats with parameter scales before anything is differentiated.
  return graph::loss_graph(author, changes_of(author), options_.symbols, [&](graph::Graph g) {
    if (objective) g = objective(std::move(g));
    graph::inline_calls(g);
    return graph::learn_scales(g, options_.products, recipe_.products.learns_attention(), scales,
                               [&](const std::string& scale) { return learns_scale_of(scale); });
  });
}

Method::Work Method::fits() const {
  graph::Graph loss = loss_of(author(), nullptr);
  graph::inline_calls(loss);
  loss = graph::fit_scales(loss, options_.products, recipe_.products.learns_attention(),
                           [&](const std::string& scale) { return learns_scale_of(scale); });
  Work work = finished(graph::evaluation_graph(std::move(loss), {}, on_graph(trained_, held_)));
  work.options.recompute = {};
  return work;
}

graph::Graph Method::apart(graph::Graph function) const {
  return graph::changed(std::move(function), {.texts_apart = form_.starts});
}

graph::Graph Method::function(const char* name) const {
  return function_of(model_, name);
}

graph::Changes Method::changes_of(const graph::Graph& function) const {
  graph::Changes out;
  if (shipping_) out = shipping_->changes(function);
  if (!shipping_) out.low_rank = changes_;
  out.roundings.insert(out.roundings.end(), roundings_.begin(), roundings_.end());
  out.texts_apart = form_.starts;
  return out;
}

// The changes of training, without dropout.
graph::Changes Method::evaluated_changes(const graph::Graph& function) const {
  graph::Changes out = changes_of(function);
  out.low_rank = without_dropout(std::move(out.low_rank));
  return out;
}

std::optional<graph::Graph> Method::teacher() const {
  if (!objective_ || !objective_->reads("teacher")) return {};
  if (!teacher_ && !is_frozen())
    throw Error(Exit::usage,
                fmt::format("the objective '{}' learns from a teacher, or from the model without its adapter; there is "
                            "neither",
                            objective_->name()),
                "--teacher MODEL names one; --lora trains an adapter");
  if (!teacher_ && recipe_.adapter.changes_base())
    throw Error(
        Exit::usage,
        fmt::format("the objective '{}' learns from the model without its adapter, which adapter.init {} changes",
                    objective_->name(), recipe_.adapter.init),
        "begin with --lora-init default, or name a --teacher");
  return reference_logits();
}

graph::Graph Method::reference_logits() const {
  return graph::bind_symbols(teacher_ ? recipe::teacher_logits(*teacher_, form_.starts) : apart(function("forward")),
                             options_.symbols);
}

Method::Work Method::finished(graph::Graph graph) const {
  Work work{std::move(graph), options_};
  add_stored_formats(work);
  return in_parts(std::move(work));
}

void Method::add_stored_formats(Work& work) const {
  if (is_frozen()) work.options.assignments = stored_formats(model_, work.graph);
  if (!teacher_) return;
  for (graph::FormatAssignment& a : recipe::teacher_formats(*teacher_, work.graph))
    work.options.assignments.push_back(std::move(a));
}

Method::Work Method::step() const {
  return finished(training_step(loss_, trained_, optimizer_, held_, changes_of(loss_)));
}

Method::Work Method::accumulate() const {
  return finished(accumulate_step(loss_, trained_, parts(), held_, changes_of(loss_)));
}

Method::Work Method::gradients_apart() const {
  return finished(
      gradient_sums_step(loss_, trained_, optimizer_, {parts(), recipe_.accumulate > 1}, held_, changes_of(loss_)));
}

Method::Work Method::apply() const {
  run::CompileOptions options;
  options.symbols = options_.symbols;
  return in_parts({apply_step(trained_, optimizer_, held_), options});
}

Method::Work Method::gradients() const {
  return finished(gradient_step(loss_, trained_, parts(), held_, changes_of(loss_)));
}

Method::Work Method::apply(const std::vector<arch::Parameter>& own) const {
  run::CompileOptions options;
  options.symbols = options_.symbols;
  // Parts whose changes other ranks receive in a format are held in f32, as is everything then.
  return {apply_parts(own, optimizer_, held_), options};
}

Method::Work Method::evaluation() const {
  const graph::Graph g = function("token_loss");
  return in_parts(evaluated(g, evaluated_changes(g)));
}

graph::Graph Method::token_losses() const {
  const graph::Graph g = function("token_loss");
  return graph::loss_graph(g, evaluated_changes(g), options_.symbols,
                           [&](graph::Graph losses) { return with_scales(std::move(losses)); });
}

Method::Work Method::logits(int64_t length) const {
  const graph::Graph g = function("forward");
  graph::Changes changes = evaluated_changes(g);
  changes.texts_apart = false;
  Work work = evaluated(g, changes, {}, {{"B", 1}, {"T", length}});
  work.options.exact = true;
  return work;
}

Method::Work Method::reference() const {
  return in_parts(evaluated(function("token_loss"), {.texts_apart = form_.starts}));
}

Method::Work Method::divergence() const {
  const graph::Graph g = function("forward");
  return in_parts(evaluated(g, evaluated_changes(g), [&](graph::Graph policy) {
    return recipe::divergence_from(model_.family->library(), std::move(policy), reference_logits());
  }));
}

Method::Work Method::objective_loss() const {
  const graph::Graph g = function(objective_->function());
  const std::optional<graph::Graph> theirs = teacher();
  return in_parts(evaluated(g, evaluated_changes(g), [&](graph::Graph policy) {
    return objective_->over(std::move(policy), form_.weights, theirs ? &*theirs : nullptr);
  }));
}

Method::Work Method::evaluated(const graph::Graph& author, const graph::Changes& changes,
                               const graph::Stage& objective) const {
  return evaluated(author, changes, objective, options_.symbols);
}

Method::Work Method::evaluated(const graph::Graph& author, const graph::Changes& changes, const graph::Stage& objective,
                               const graph::Bindings& symbols) const {
  run::CompileOptions options;
  options.symbols = symbols;
  const graph::Stage stage = [&](graph::Graph g) { return with_scales(objective ? objective(std::move(g)) : g); };
  graph::Graph g =
      graph::evaluation_graph(graph::loss_graph(author, changes, symbols, scales_.empty() ? objective : stage), changes,
                              on_graph(trained_, held_));
  if (is_frozen()) {
    Work work{std::move(g), options_};
    add_stored_formats(work);
    work.options.products.random = {};  // no stochastic rounding outside of training
    return work;
  }
  options.exact = held_.type.format != nullptr;
  Work work{std::move(g), options};
  add_stored_formats(work);
  return work;
}

double Method::operations() const {
  std::vector<std::string> names;
  for (const arch::Parameter& p : trained_) names.push_back(p.name);
  return graph::training_work(loss_, names) * recipe_.accumulate;
}

int64_t window_length(const arch::Model& model, const recipe::Recipe& recipe) {
  if (recipe.length > 0) return recipe.length;
  if (!model.config.contains("context"))
    throw usage_error("the family '{}' has no key 'context': give --length", model.family->name());
  return model.integer("context");
}

}  // namespace lumen::model::train
