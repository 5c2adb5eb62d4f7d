#include "graph/transform/encode_inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/match/attend.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "graph/transform/low_rank.h"
#include "number/facts/facts.h"

namespace lumen::graph {
namespace {

class Encoder {
 public:
  Encoder(const Graph& g, const std::vector<EncodedInput>& inputs) : r_(g) {
    for (const EncodedInput& input : inputs)
      if (const ValueId v = g.find_input(input.weight); v >= 0) wanted_[v] = &input;
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const int side = weight_side(v);
      if (side < 0)
        r_.keep(v);
      else
        replace(v, side);
    }
    for (const auto& [weight, input] : wanted_)
      if (!reached_.contains(weight))
        throw user_error("no product reads columns of '{}': its input cannot be encoded", input->weight);
    return r_.finish();
  }

 private:
  // The operand that is one of the given weights; -1: none.
  int weight_side(ValueId v) const {
    const Node& node = r_.from[v];
    if (node.op == Op::contract_) {
      for (const int side : {1, 0})
        if (is_wanted(node.operands[side], 2) && reads_columns_of(node, side)) return side;
    } else if (node.op == Op::contract_gather_ && is_wanted(node.operands[1], 3) && reads_columns_of(node, 1)) {
      return 1;
    }
    return -1;
  }
  bool is_wanted(ValueId v, size_t axes) const {
    const Node& node = r_.from[v];
    return wanted_.contains(v) && node.attributes.role == Role::parameter && node.type.shape.size() == axes;
  }

  void replace(ValueId v, int side) {
    const Node& node = r_.from[v];
    const ValueId weight = node.operands[side], x = node.operands[1 - side];
    reached_.insert(weight);
    const std::vector<std::string>& i = node.attributes.indices;
    const ValueId coded = encoded(x, i[1 - side].find(i[side].back()), *wanted_.at(weight));
    const ValueId a = side == 1 ? coded : r_[node.operands[0]], b = side == 1 ? r_[node.operands[1]] : coded;
    r_.replace(v, node.op == Op::contract_ ? r_.build.contract(a, b, i[0], i[1], i[2])
                                           : r_.build.contract_gather(a, b, r_[node.operands[2]], i[0], i[1], i[2]));
    r_.keep_label(v);
  }

  // Formats store rows of columns: the axes that the product sums over are last in the encoded value.
  ValueId encoded(ValueId x, size_t column, const EncodedInput& input) {
    const Format& f = *input.format;
    const Shape shape = r_.from[x].type.shape;
    if (const auto why = refuses_inputs(f, shape[column].number(), input.scale))
      throw user_error("the input of '{}' cannot be stored in the format '{}': {}", input.weight, f.name, *why);
    const auto key = std::tuple(x, column, f.hash.hex(), input.scale.value_or(-1));
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    std::vector<int> order, back(shape.size());
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != column) order.push_back(d);
    order.push_back(column);
    for (size_t d = 0; d < order.size(); ++d) back[order[d]] = d;
    const bool turns = column + 1 != shape.size();
    ValueId y = turns ? r_.build.permute(r_[x], order) : r_[x];
    std::vector<std::pair<int, FieldSource>> sources;
    std::vector<ValueId> fields;
    if (input.scale) {
      sources.emplace_back(tensor_scale(f), FieldSource::supplied);
      fields.push_back(r_.build.scalar(*input.scale));
    }
    y = r_.build.cast(y, {Scalar::f32, input.format}, sources, fields);
    y = r_.build.cast(y, Element{});
    if (turns) y = r_.build.permute(y, back);
    if (!r_.from[x].label.empty()) r_.to[y].label = r_.from[x].label + ".encoded";
    return known_[key] = y;
  }

  Rewriter r_;
  std::map<ValueId, const EncodedInput*> wanted_;
  std::set<ValueId> reached_;
  std::map<std::tuple<ValueId, size_t, std::string, double>, ValueId> known_;
};

// Casts x to codes with a scale and back.
ValueId passed_through(Builder& build, ValueId x, const FormatRef& format, double scale) {
  const ValueId codes =
      build.cast(x, {Scalar::f32, format}, {{tensor_scale(*format), FieldSource::supplied}}, {build.scalar(scale)});
  return build.cast(codes, Element{});
}

class StateEncoder {
 public:
  StateEncoder(const Graph& g, const std::vector<EncodedState>& states) : r_(g), states_(states) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const Node& node = r_.from[v];
      const EncodedState* const state = node.op == Op::update_ ? state_of(v) : nullptr;
      if (state)
        replace(v, *state);
      else
        r_.keep(v);
    }
    for (const auto& [state, count] : updates_)
      if (count != state->scales.size())
        throw user_error("{} values are put into '{}', for which there are {} scales: one for each layer is expected",
                         count, state->ending, state->scales.size());
    return r_.finish();
  }

 private:
  // The state at the start of a chain of updates.
  const EncodedState* state_of(ValueId v) const {
    while (r_.from[v].op == Op::update_) v = r_.from[v].operands[0];
    const Node& input = r_.from[v];
    if (input.op != Op::input_ || input.attributes.role != Role::state) return nullptr;
    for (const EncodedState& s : states_)
      if (input.attributes.name.ends_with(s.ending)) return &s;
    return nullptr;
  }

  // Updates are in the order of layers, so their count is the layer's number.
  void replace(ValueId v, const EncodedState& state) {
    const size_t layer = updates_[&state]++;
    if (layer >= state.scales.size()) {
      r_.keep(v);
      return;
    }
    std::vector<ValueId> operands = r_.operands(v);
    operands[1] = passed_through(r_.build, operands[1], state.format, state.scales[layer]);
    const std::vector<ValueId> starts(operands.begin() + 2, operands.end());
    r_.replace(v, r_.build.update(operands[0], operands[1], starts));
    r_.keep_label(v);
  }

  Rewriter r_;
  const std::vector<EncodedState>& states_;
  std::map<const EncodedState*, size_t> updates_;
};

// The same in a graph without caches, which computes all positions of a sequence at once: encodes the keys and values
// of each attention, which a cache would have stored.
class AttentionEncoder {
 public:
  AttentionEncoder(const Graph& g, const std::vector<EncodedState>& states) : r_(g) {
    const std::vector<Attention> found = find_attention(g, users_of(g), 0, false);
    for (const EncodedState& state : states) {
      if (!found.empty() && found.size() != state.scales.size())
        throw user_error("{} attentions read '{}', for which there are {} scales: one for each layer is expected",
                         found.size(), state.ending, state.scales.size());
      for (size_t layer = 0; layer < found.size(); ++layer) {
        const bool are_values = state.ending == kValues;
        const ValueId product = are_values ? found[layer].output : scores_of(g, found[layer]);
        wanted_[product].push_back({are_values ? 1 : key_side(g[product]), &state, state.scales[layer]});
      }
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const auto wanted = wanted_.find(v);
      if (wanted == wanted_.end())
        r_.keep(v);
      else
        replace(v, wanted->second);
    }
    return r_.finish();
  }

 private:
  static constexpr std::string_view kValues = "values";
  struct Operand {
    int side;
    const EncodedState* state;
    double scale;
  };

  static ValueId scores_of(const Graph& g, const Attention& attention) {
    return *std::ranges::find_if(attention.nodes, [&](ValueId v) { return g[v].op == Op::contract_; });
  }
  // The operand with the scores' last axis.
  static int key_side(const Node& product) {
    const std::vector<std::string>& i = product.attributes.indices;
    return i[0].find(i[2].back()) != std::string::npos ? 0 : 1;
  }

  void replace(ValueId v, const std::vector<Operand>& operands) {
    const std::vector<std::string>& i = r_.from[v].attributes.indices;
    std::vector<ValueId> sides = r_.operands(v);
    for (const Operand& o : operands) sides[o.side] = passed_through(r_.build, sides[o.side], o.state->format, o.scale);
    r_.replace(v, r_.build.contract(sides[0], sides[1], i[0], i[1], i[2]));
    r_.keep_label(v);
  }

  Rewriter r_;
  std::map<ValueId, std::vector<Operand>> wanted_;
};

bool has_states(const Graph& g, const std::vector<EncodedState>& states) {
  return std::ranges::any_of(g.inputs(), [&](ValueId v) {
    return g[v].attributes.role == Role::state &&
           std::ranges::any_of(states, [&](const EncodedState& s) { return g[v].attributes.name.ends_with(s.ending); });
  });
}

}  // namespace

std::optional<std::string> refuses_inputs(const Format& f, int64_t columns, const std::optional<double>& scale) {
  if (!f.encodes()) return "it can only be decoded";
  if (columns % f.block != 0) return fmt::format("{} columns do not divide into its blocks of {}", columns, f.block);
  if (!scale) return std::nullopt;
  const int field = tensor_scale(f);
  if (field < 0) return "a calibrated scale is for formats with one number per tensor in addition to their codes";
  const FieldType& type = f.fields[field].type;
  const double kept = field_decode(type, field_encode(type, *scale));
  if (!std::isfinite(*scale) || !(*scale > 0) || !std::isfinite(kept) || !(kept > 0))
    return fmt::format("{} is no scale that it can hold", *scale);
  return std::nullopt;
}

Graph encode_all_inputs(Graph g, const FormatRef& format) {
  inline_calls(g);
  simplify(g);
  std::vector<EncodedInput> inputs;
  for (const auto& [name, places] : low_rank_places(g)) {
    const int64_t columns = g[g.find_input(name)].type.shape.back().number();
    if (places.products && columns % format->block == 0) inputs.push_back({name, format, {}});
  }
  return encode_inputs(std::move(g), inputs);
}

Graph encode_inputs(Graph g, const std::vector<EncodedInput>& inputs) {
  if (inputs.empty()) return g;
  inline_calls(g);
  simplify(g);
  return Encoder(g, inputs).run();
}

Graph encode_states(Graph g, const std::vector<EncodedState>& states) {
  if (states.empty()) return g;
  inline_calls(g);
  simplify(g);
  return has_states(g, states) ? StateEncoder(g, states).run() : AttentionEncoder(g, states).run();
}

}  // namespace lumen::graph
