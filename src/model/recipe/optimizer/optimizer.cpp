#include "model/recipe/optimizer/optimizer.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/build.h"
#include "run/device/require.h"

namespace lumen::model::recipe {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

graph::Type f32_type(graph::Shape shape) {
  return {std::move(shape), {Scalar::f32, nullptr}};
}

// The optimizer's part of a graph, shared by all kinds of steps.
class OptimizerGraph {
 public:
  // `apart`: every rounding has its own seed (group_step).
  OptimizerGraph(Builder& build, const Optimizer& optimizer, bool apart = false)
      : build_(build), optimizer_(optimizer), apart_(apart) {
    for (const auto& [name, unused] : optimizer.numbers(1, 1))
      numbers_[name] = build.input(name, Role::data, f32_type({}));
  }

  // Global norm of all gradients, rank 0.
  ValueId norm(const std::vector<ValueId>& gradients) {
    ValueId total = -1;
    for (ValueId g : gradients) {
      const graph::Shape shape = build_.type(g).shape;
      std::vector<int> axes;
      for (size_t i = 0; i < shape.size(); ++i) axes.push_back(i);
      const ValueId squares = build_.mul(g, g);
      const ValueId sum =
          build_.reshape(axes.empty() ? squares : build_.reduce(squares, graph::Reduction::sum, axes), {});
      squares_.push_back(sum);
      total = total < 0 ? sum : build_.add(total, sum);
    }
    return build_.unary(ScalarOp::sqrt_, total);
  }

  void add_squares(Graph& g, const std::vector<arch::Parameter>& trained) const {
    for (size_t i = 0; i < trained.size(); ++i) {
      g.results.push_back(squares_[i]);
      g.result_names.push_back(kSquares + trained[i].name);
    }
  }

  // min(1, max_norm / norm); the tiny addend avoids 0 / 0.
  ValueId clip(ValueId norm) {
    if (optimizer_.settings().max_norm <= 0) return build_.scalar(1.0);
    const ValueId ratio =
        build_.div(build_.scalar(optimizer_.settings().max_norm), build_.add(norm, build_.scalar(1e-12)));
    return build_.binary(ScalarOp::min_, build_.scalar(1.0), ratio);
  }

  // `parameter` is the input, `value` its value as f32: the same unless it is held in another type.
  void apply(const arch::Parameter& p, ValueId parameter, ValueId value, ValueId gradient, ValueId clip) {
    std::map<std::string, ValueId> known = {{"value", value}, {"gradient", build_.mul(gradient, clip)}};
    for (const auto& [name, input] : numbers_) known[name.substr(name.find('.') + 1)] = input;
    const ValueId rate = numbers_.at(kLearningRate);
    known["rate"] = p.rate == 1 ? rate : build_.mul(rate, build_.scalar(p.rate));
    std::map<std::string, ValueId> held;
    for (const Optimizer::State& s : optimizer_.states(p)) {
      held[s.name] = build_.input(optimizer_state(s.name, p.name), Role::state, s.type);
      known[s.name] = seen(s, held[s.name]);
    }
    const bool compensates = optimizer_.compensates(p);
    if (compensates) known["value"] = whole(value, known.at(kRest));
    std::map<std::string, ValueId> next;
    ValueId result = append(optimizer_.update(p), known, &next);
    // Updates of a scale are relative to its size: one absolute step size would be negligible for one scale and huge
    // for another. It keeps its sign where rates are below 1.
    if (p.role == kRoleOperandScale)
      result = build_.add(value, build_.mul(build_.unary(ScalarOp::abs_, value), build_.sub(result, value)));
    for (const Optimizer::State& s : optimizer_.states(p))
      if (const auto n = next.find(s.name); n != next.end()) build_.update(held[s.name], stored(s, n->second));
    const Kept kept = kept_of(parameter, value, result, compensates);
    if (compensates) build_.update(held[kRest], as_held(kept.rest, build_.type(held[kRest]).element));
    build_.update(parameter, kept.value);
    if (optimizer_.bounds(p)) bound(p, as_f32(kept.value));
    if (optimizer_.settings().ema_decay > 0) average(p, parameter, result);
  }

 private:
  // The stored part of a new value, and its rounding residual.
  struct Kept {
    ValueId value = -1, rest = -1;
  };
  Kept kept_of(ValueId parameter, ValueId value, ValueId result, bool compensates) {
    if (parameter == value) return {result};
    const graph::Element as = build_.type(parameter).element;
    if (optimizer_.held().is_random) return {rounded(result, as)};
    if (compensates && optimizer_.held().is_exact) {
      const Halves halves = split_halves(build_, result);
      return {halves.upper, halves.lower};
    }
    const ValueId now = as_held(result, as);
    return {now, compensates ? build_.sub(result, as_f32(now)) : -1};
  }
  // The value that the update reads: a parameter plus its residual.
  ValueId whole(ValueId value, ValueId rest) {
    return optimizer_.held().is_exact ? join_halves(build_, value, rest) : build_.add(value, rest);
  }
  ValueId as_f32(ValueId value) {
    return build_.type(value).element == graph::Element{} ? value : build_.cast(value, {Scalar::f32, nullptr});
  }

  ValueId as_held(ValueId value, const graph::Element& as) {
    return as == graph::Element{} ? value : build_.cast(value, as);
  }

  // Updates the exponential moving average of a parameter with its new value.
  void average(const arch::Parameter& p, ValueId parameter, ValueId value) {
    const graph::Type type = build_.type(parameter);
    const ValueId mean = build_.input(average_of(p.name), Role::state, type);
    const double decay = optimizer_.settings().ema_decay;
    const ValueId was = as_f32(mean);
    const ValueId next = build_.add(build_.mul(was, build_.scalar(decay)), build_.mul(value, build_.scalar(1 - decay)));
    build_.update(mean, was == mean ? next : rounded(next, type.element));
  }

  // Updates the bound on a parameter's magnitude after its new value (MOSS, section 3.2, with the optimizer's
  // `most_move` instead of the rate).
  void bound(const arch::Parameter& p, ValueId value) {
    const ValueId was = build_.input(graph::kLargestState + p.name, Role::state, f32_type({}));
    std::vector<int> axes;
    for (size_t i = 0; i < p.shape.size(); ++i) axes.push_back(i);
    const ValueId largest =
        build_.reshape(build_.reduce(build_.unary(ScalarOp::abs_, value), graph::Reduction::max, axes), {});
    const ValueId move = build_.mul(numbers_.at(kMostMove), build_.scalar(p.rate));
    const ValueId is_due = build_.binary(ScalarOp::ne_, numbers_.at(kRescale), build_.scalar(0.0));
    build_.update(was, build_.select(is_due, largest, build_.mul(build_.add(was, move), build_.scalar(most_lost(p)))));
  }
  // Rounding to 16 bits enlarges a weight by at most this factor, including its earlier residual.
  double most_lost(const arch::Parameter& p) const {
    if (!optimizer_.held().holds(p)) return 1;
    return 1 + std::ldexp(2, optimizer_.held().element.scalar == Scalar::bf16 ? -7 : -10);
  }

  // The value of a state that the update reads.
  ValueId seen(const Optimizer::State& state, ValueId held) {
    const ValueId value = as_f32(held);
    return state.is_root ? build_.mul(value, value) : value;
  }

  // The stored form of a state's new value.
  ValueId stored(const Optimizer::State& state, ValueId value) {
    const FormatRef& format = state.type.element.format;
    if (!format) return value;
    if (state.is_root) value = build_.unary(ScalarOp::sqrt_, value);
    if (const auto bits = Optimizer::stochastic_bits(*format)) {
      const ValueId from = seed();
      value = round_mantissa(build_, value, *bits, from, salt());
    }
    return build_.cast(value, state.type.element);
  }

  // Appends an update's nodes; new values of states are put into `next` instead of written.
  ValueId append(const Graph& update, const std::map<std::string, ValueId>& known,
                 std::map<std::string, ValueId>* next) {
    std::vector<ValueId> map;
    for (const graph::Node& node : update.nodes) {
      if (node.op == graph::Op::input_) {
        map.push_back(known.at(node.attributes.name));
        continue;
      }
      if (node.op == graph::Op::update_) {
        ValueId state = node.operands[0];
        while (update[state].op == graph::Op::update_) state = update[state].operands[0];
        if (node.operands.size() != 2)
          throw user_error("state '{}' of an optimizer can only be updated as a whole", update[state].attributes.name);
        map.push_back((*next)[update[state].attributes.name] = map[node.operands[1]]);
        continue;
      }
      graph::Node copy = node;
      for (ValueId& operand : copy.operands) operand = map[operand];
      build_.graph.nodes.push_back(std::move(copy));
      map.push_back(build_.graph.nodes.size() - 1);
    }
    return map[update.results[0]];
  }

  // The seed of the next rounding, followed by its salt.
  ValueId seed() {
    if (apart_) return build_.input(seed_of_draw(draws_++), Role::data, {{}, {Scalar::u32, nullptr}});
    if (seed_ < 0) seed_ = build_.input(kRoundingSeed, Role::data, {{}, {Scalar::u32, nullptr}});
    return seed_;
  }
  uint32_t salt() { return apart_ ? kFirstSalt : salt_++; }
  ValueId rounded(ValueId value, const graph::Element& as) {
    const ValueId from = seed();
    return hold_at_random(build_, value, as, from, salt());
  }

  Builder& build_;
  const Optimizer& optimizer_;
  std::map<std::string, ValueId> numbers_;
  bool apart_;
  ValueId seed_ = -1;
  std::vector<ValueId> squares_;  // of each gradient
  uint32_t salt_ = kFirstSalt;
  size_t draws_ = 0;
};

ValueId loss_of(const Graph& g) {
  if (!g[g.results[0]].type.shape.empty())
    throw user_error("the family's function 'loss' returns {}, not a scalar", print(g[g.results[0]].type));
  return g.results[0];
}

// The parameters of a graph with held types: their inputs, and their values in f32.
struct Parameters {
  std::vector<ValueId> inputs, values;

  Parameters(const Graph& g, const std::vector<arch::Parameter>& trained, const Holding& held) {
    for (const arch::Parameter& p : trained) {
      const ValueId v = g.find_input(p.name);
      if (v < 0)
        throw Error(Exit::user, fmt::format("parameter '{}' is trained, but the family's loss does not use it", p.name),
                    "make it 'frozen', or use it in 'loss'");
      inputs.push_back(v);
      values.push_back(held_value(g, v, held));
    }
  }
};

// A training step whose gradients are consumed by `update`.
graph::TrainingStep step_with(std::string name, const std::vector<arch::Parameter>& trained, const Holding& held,
                              std::function<void(Graph&, const Parameters&, const std::vector<ValueId>&)> update) {
  return {std::move(name), on_graph(trained, held),
          [&](const Graph& g) {
            (void)loss_of(g);
            return Parameters(g, trained, held).values;
          },
          [&, update = std::move(update)](Graph& g, const std::vector<ValueId>& gradients) {
            update(g, Parameters(g, trained, held), gradients);
          }};
}

}  // namespace

int64_t most_logits(const Graph& g, const std::vector<arch::Parameter>& trained) {
  std::set<std::string> names;
  for (const arch::Parameter& p : trained) names.insert(p.name);
  int64_t all = 0, ours = 0;
  for (const ValueId v : g.inputs()) {
    if (g[v].attributes.role != graph::Role::parameter) continue;
    const int64_t bytes = graph::byte_size(g[v].type);
    all = run::saturating_sum(all, bytes);
    if (names.count(g[v].attributes.name) > 0) ours = run::saturating_sum(ours, bytes);
  }
  return int64_t{ours < all / 2 ? 128 : 256} << 20;
}

Graph weighted_loss(Graph g) {
  LUMEN_CHECK(g.results.size() == 1 && g[g.results[0]].type.shape.size() == 2);
  const ValueId losses = g.results[0];
  Builder build(g);
  const ValueId weights = build.input("weights", Role::data, f32_type(g[losses].type.shape));
  const ValueId sum = build.reduce(build.mul(losses, weights), graph::Reduction::sum, {0, 1});
  g.results = {build.reshape(sum, {})};
  return g;
}

graph::Trained on_graph(const std::vector<arch::Parameter>& trained, const Holding& held) {
  return {[&](Graph g) { return hold(std::move(g), held); }, [&](const Graph& g) { return most_logits(g, trained); }};
}

Graph training_step(Graph loss, const std::vector<arch::Parameter>& trained, const Optimizer& optimizer,
                    const Holding& held, const graph::Changes& changes) {
  const auto update = [&](Graph& g, const Parameters& parameters, const std::vector<ValueId>& gradients) {
    Builder build(g);
    OptimizerGraph part(build, optimizer);
    const ValueId norm = part.norm(gradients);
    const ValueId clip = part.clip(norm);
    for (size_t i = 0; i < trained.size(); ++i)
      part.apply(trained[i], parameters.inputs[i], parameters.values[i], gradients[i], clip);
    g.results.insert(g.results.begin() + 1, norm);
    g.result_names.insert(g.result_names.begin() + 1, "norm");
    part.add_squares(g, trained);
  };
  return graph::training_graph(std::move(loss), changes, step_with("train", trained, held, update));
}

Graph accumulate_step(Graph loss, const std::vector<arch::Parameter>& trained, int parts, const Holding& held,
                      const graph::Changes& changes) {
  LUMEN_CHECK(parts >= 1);
  const auto update = [&](Graph& g, const Parameters&, const std::vector<ValueId>& gradients) {
    Builder build(g);
    for (size_t i = 0; i < trained.size(); ++i) {
      const ValueId sum = build.input(kGradient + trained[i].name, Role::state, f32_type(trained[i].shape));
      build.update(sum, build.add(sum, build.mul(gradients[i], build.scalar(1.0 / parts))));
    }
  };
  return graph::training_graph(std::move(loss), changes, step_with("accumulate", trained, held, update));
}

Graph gradient_step(Graph loss, const std::vector<arch::Parameter>& trained, int parts, const Holding& held,
                    const graph::Changes& changes) {
  const auto update = [&](Graph& g, const Parameters&, const std::vector<ValueId>& gradients) {
    Builder build(g);
    for (size_t i = 0; i < trained.size(); ++i) {
      g.results.push_back(build.mul(gradients[i], build.scalar(1.0 / parts)));
      g.result_names.push_back(kGradient + trained[i].name);
    }
  };
  return graph::training_graph(std::move(loss), changes, step_with("gradients", trained, held, update));
}

Graph gradient_sums_step(Graph loss, const std::vector<arch::Parameter>& trained, const Optimizer& optimizer,
                         const Accumulation& sums, const Holding& held, const graph::Changes& changes) {
  LUMEN_CHECK(sums.parts >= 1);
  const auto update = [&](Graph& g, const Parameters&, const std::vector<ValueId>& gradients) {
    Builder build(g);
    std::vector<ValueId> totals;
    for (size_t i = 0; i < trained.size(); ++i) {
      const ValueId sum = build.input(kGradient + trained[i].name, Role::state, f32_type(trained[i].shape));
      const ValueId own = gradients[i];
      // Later reads use the state, so that the step's own value can be freed.
      totals.push_back(
          build.update(sum, sums.adds ? build.add(sum, build.mul(own, build.scalar(1.0 / sums.parts))) : own));
    }
    OptimizerGraph part(build, optimizer);
    const ValueId norm = part.norm(totals);
    const ValueId clip = part.clip(norm);
    for (const auto& [name, value] : {std::pair("norm", norm), {kClip, clip}}) {
      g.results.push_back(value);
      g.result_names.emplace_back(name);
    }
    part.add_squares(g, trained);
  };
  return graph::training_graph(std::move(loss), changes, step_with("gradients", trained, held, update));
}

namespace {

// Inputs for held parameters, and for their accumulated gradients.
std::pair<Parameters, std::vector<ValueId>> begin_update(Graph& g, const std::vector<arch::Parameter>& trained,
                                                         const Holding& held) {
  Builder build(g);
  for (const arch::Parameter& p : trained) build.input(p.name, Role::parameter, f32_type(p.shape));
  g = hold(std::move(g), held);
  std::vector<ValueId> gradients;
  for (const arch::Parameter& p : trained)
    gradients.push_back(build.input(kGradient + p.name, Role::state, f32_type(p.shape)));
  return {Parameters(g, trained, held), gradients};
}

// A graph that applies and clears accumulated gradients; `norm` computes their norm.
Graph applied(const std::vector<arch::Parameter>& trained, const Optimizer& optimizer, const Holding& held,
              const std::function<ValueId(OptimizerGraph&, Builder&, const std::vector<ValueId>&)>& norm,
              const std::function<void(OptimizerGraph&, Graph&, ValueId norm, ValueId clip)>& results) {
  Graph g;
  g.name = "apply";
  const auto [parameters, gradients] = begin_update(g, trained, held);
  Builder build(g);
  OptimizerGraph part(build, optimizer);
  const ValueId whole = norm(part, build, gradients);
  const ValueId clip = part.clip(whole);
  for (size_t i = 0; i < trained.size(); ++i) {
    part.apply(trained[i], parameters.inputs[i], parameters.values[i], gradients[i], clip);
    build.update(gradients[i], build.broadcast(build.scalar(0.0), trained[i].shape));
  }
  results(part, g, whole, clip);
  return g;
}

}  // namespace

std::string seed_of_draw(size_t draw) {
  return fmt::format("{}.{}", kRoundingSeed, draw);
}

Graph group_step(const std::vector<arch::Parameter>& group, const Optimizer& optimizer, bool clears,
                 const Holding& held) {
  Graph g;
  g.name = "update";
  const auto [parameters, gradients] = begin_update(g, group, held);
  Builder build(g);
  const ValueId clip = build.input(kClip, Role::data, f32_type({}));
  OptimizerGraph part(build, optimizer, true);
  for (size_t i = 0; i < group.size(); ++i) {
    part.apply(group[i], parameters.inputs[i], parameters.values[i], gradients[i], clip);
    if (clears) build.update(gradients[i], build.broadcast(build.scalar(0.0), group[i].shape));
  }
  g.results = {clip};
  g.result_names = {kClip};
  return g;
}

Graph apply_step(const std::vector<arch::Parameter>& trained, const Optimizer& optimizer, const Holding& held) {
  return applied(
      trained, optimizer, held,
      [](OptimizerGraph& part, Builder&, const std::vector<ValueId>& gradients) { return part.norm(gradients); },
      [&](OptimizerGraph& part, Graph& g, ValueId norm, ValueId) {
        g.results = {norm};
        g.result_names = {"norm"};
        part.add_squares(g, trained);
      });
}

Graph apply_parts(const std::vector<arch::Parameter>& parts, const Optimizer& optimizer, const Holding& held) {
  return applied(
      parts, optimizer, held,
      [](OptimizerGraph&, Builder& build, const std::vector<ValueId>&) {
        return build.input(kGivenNorm, Role::data, f32_type({}));
      },
      [](OptimizerGraph&, Graph& g, ValueId, ValueId clip) {
        g.results = {clip};
        g.result_names = {"clip"};
      });
}

}  // namespace lumen::model::recipe
