#include "model/train/optimizer.h"

#include <map>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/pass/pipeline.h"

namespace lumen::model {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

graph::Type f32_type(graph::Shape shape) {
  return {std::move(shape), {Scalar::f32, nullptr}};
}

// The optimizer's part, shared by both ways to come by gradients. Formulas are single maps, so that each parameter's
// moments and values are read and written once.
class AdamWGraph {
 public:
  AdamWGraph(Builder& build, const AdamW& settings) : build_(build), settings_(settings) {
    rate_ = build.input(kLearningRate, Role::data, f32_type({}));
    correction1_ = build.input(kCorrection1, Role::data, f32_type({}));
    correction2_ = build.input(kCorrection2, Role::data, f32_type({}));
  }

  // |all gradients|, rank 0.
  ValueId norm(const std::vector<ValueId>& gradients) {
    ValueId total = -1;
    for (ValueId g : gradients) {
      const graph::Shape shape = build_.type(g).shape;
      std::vector<int> axes;
      for (size_t i = 0; i < shape.size(); ++i) axes.push_back(static_cast<int>(i));
      const ValueId squares = build_.mul(g, g);
      const ValueId sum =
          build_.reshape(axes.empty() ? squares : build_.reduce(squares, graph::Reduction::sum, axes), {});
      squares_.push_back(sum);
      total = total < 0 ? sum : build_.add(total, sum);
    }
    return build_.unary(ScalarOp::sqrt_, total);
  }

  void add_squares(Graph& g, const std::vector<Parameter>& trained) const {
    for (size_t i = 0; i < trained.size(); ++i) {
      g.results.push_back(squares_[i]);
      g.result_names.push_back(kSquares + trained[i].name);
    }
  }

  // min(1, max_norm / norm); the tiny addend keeps 0 / 0 away.
  ValueId clip(ValueId norm) {
    if (settings_.max_norm <= 0) return build_.scalar(1.0);
    const ValueId ratio = build_.div(build_.scalar(settings_.max_norm), build_.add(norm, build_.scalar(1e-12)));
    return build_.binary(ScalarOp::min_, build_.scalar(1.0), ratio);
  }

  // `parameter` is the input, `value` what it holds as f32: the same unless it is held in another type.
  void apply(const Parameter& p, ValueId parameter, ValueId value, ValueId gradient, ValueId clip) {
    const graph::Type type = f32_type(p.shape);
    const ValueId m = build_.input(kFirstMoment + p.name, Role::state, type);
    const ValueId v = build_.input(kSecondMoment + p.name, Role::state, type);
    const auto number = [&](double x) { return build_.scalar(x); };
    const ValueId g = build_.mul(gradient, clip);
    const ValueId m_next =
        build_.add(build_.mul(m, number(settings_.beta1)), build_.mul(g, number(1 - settings_.beta1)));
    const ValueId v_next =
        build_.add(build_.mul(v, number(settings_.beta2)), build_.mul(build_.mul(g, g), number(1 - settings_.beta2)));
    const ValueId root = build_.unary(ScalarOp::sqrt_, build_.div(v_next, correction2_));
    ValueId move = build_.div(build_.div(m_next, correction1_), build_.add(root, number(settings_.epsilon)));
    if (p.decays && settings_.weight_decay != 0) {
      move = build_.add(move, build_.mul(value, number(settings_.weight_decay)));
    }
    if (p.rate != 1) move = build_.mul(move, number(p.rate));
    ValueId next = build_.sub(value, build_.mul(rate_, move));
    if (parameter != value) next = rounded(next);
    build_.update(m, m_next);
    build_.update(v, v_next);
    build_.update(parameter, next);
  }

 private:
  ValueId rounded(ValueId value) {
    if (seed_ < 0) seed_ = build_.input(kRoundingSeed, Role::data, {{}, {Scalar::u32, nullptr}});
    return round_stochastically(build_, value, seed_, salt_++);
  }

  Builder& build_;
  const AdamW& settings_;
  ValueId rate_, correction1_, correction2_, seed_ = -1;
  std::vector<ValueId> squares_;  // of each gradient
  uint32_t salt_ = 1;
};

ValueId loss_of(const Graph& g) {
  if (g.results.size() != 1 || !g[g.results[0]].type.shape.empty())
    throw user_error("the family's function 'loss' gives {}, not a single number",
                     g.results.size() == 1 ? print(g[g.results[0]].type) : fmt::format("{} results", g.results.size()));
  return g.results[0];
}

// The parameters of a graph: their inputs, and their values in f32.
struct Parameters {
  std::vector<ValueId> inputs, values;

  // Makes `g` hold them so first.
  Parameters(Graph& g, const std::vector<Parameter>& trained, const Holding& held) {
    std::map<std::string, ValueId> casts;
    g = hold(std::move(g), held, &casts);
    for (const Parameter& p : trained) {
      const ValueId v = g.find_input(p.name);
      if (v < 0)
        throw Error(Exit::user, fmt::format("parameter '{}' is trained, but the family's loss does not use it", p.name),
                    "make it 'frozen', or use it in 'loss'");
      inputs.push_back(v);
      const auto cast = casts.find(p.name);
      values.push_back(cast == casts.end() ? v : cast->second);
    }
  }
};

}  // namespace

Graph weighted_loss(Graph g) {
  LUMEN_CHECK(g.results.size() == 1 && g[g.results[0]].type.shape.size() == 2);
  const ValueId losses = g.results[0];
  Builder build(g);
  const ValueId weights = build.input("weights", Role::data, f32_type(g[losses].type.shape));
  const ValueId sum = build.reduce(build.mul(losses, weights), graph::Reduction::sum, {0, 1});
  g.results = {build.reshape(sum, {})};
  return g;
}

Graph training_step(Graph loss, const std::vector<Parameter>& trained, const AdamW& settings, const Holding& held) {
  Graph g = std::move(loss);
  g.name = "train";
  graph::inline_calls(g);
  const Parameters parameters(g, trained, held);
  ValueId loss_value = loss_of(g);
  const std::vector<ValueId> gradients = graph::differentiate_by_rows(g, loss_value, parameters.values);
  Builder build(g);
  AdamWGraph adam(build, settings);
  const ValueId norm = adam.norm(gradients);
  const ValueId clip = adam.clip(norm);
  for (size_t i = 0; i < trained.size(); ++i)
    adam.apply(trained[i], parameters.inputs[i], parameters.values[i], gradients[i], clip);
  g.results = {loss_value, norm};
  g.result_names = {"loss", "norm"};
  adam.add_squares(g, trained);
  return g;
}

Graph accumulate_step(Graph loss, const std::vector<Parameter>& trained, int parts, const Holding& held) {
  LUMEN_CHECK(parts >= 1);
  Graph g = std::move(loss);
  g.name = "accumulate";
  graph::inline_calls(g);
  const Parameters parameters(g, trained, held);
  ValueId loss_value = loss_of(g);
  const std::vector<ValueId> gradients = graph::differentiate_by_rows(g, loss_value, parameters.values);
  Builder build(g);
  for (size_t i = 0; i < trained.size(); ++i) {
    const ValueId sum = build.input(kGradient + trained[i].name, Role::state, f32_type(trained[i].shape));
    build.update(sum, build.add(sum, build.mul(gradients[i], build.scalar(1.0 / parts))));
  }
  g.results = {loss_value};
  g.result_names = {"loss"};
  return g;
}

Graph apply_step(const std::vector<Parameter>& trained, const AdamW& settings, const Holding& held) {
  Graph g;
  g.name = "apply";
  Builder build(g);
  for (const Parameter& p : trained) build.input(p.name, Role::parameter, f32_type(p.shape));
  const Parameters parameters(g, trained, held);
  std::vector<ValueId> gradients;
  for (const Parameter& p : trained)
    gradients.push_back(build.input(kGradient + p.name, Role::state, f32_type(p.shape)));
  AdamWGraph adam(build, settings);
  const ValueId norm = adam.norm(gradients);
  const ValueId clip = adam.clip(norm);
  for (size_t i = 0; i < trained.size(); ++i) {
    adam.apply(trained[i], parameters.inputs[i], parameters.values[i], gradients[i], clip);
    build.update(gradients[i], build.broadcast(build.scalar(0.0), trained[i].shape));
  }
  g.results = {norm};
  g.result_names = {"norm"};
  adam.add_squares(g, trained);
  return g;
}

}  // namespace lumen::model
