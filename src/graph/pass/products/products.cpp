#include "graph/pass/products/products.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordinal.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/learned/learned.h"
#include "graph/pass/operand_formats.h"
#include "number/facts/facts.h"

namespace lumen::graph {
namespace {

bool has_batch_letter(const Node& contract) {
  const std::vector<std::string>& i = contract.attributes.indices;
  for (const char letter : i[2])
    if (i[0].find(letter) != std::string::npos && i[1].find(letter) != std::string::npos) return true;
  return false;
}

// In a step of the backward pass, values that depend on no gradient belong to the forward pass.
std::vector<bool> forward_in_step(const Graph& body, const Around& around) {
  std::vector<bool> out(body.nodes.size());
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
    out[v] = !around.gradients[v] &&
             std::all_of(body[v].operands.begin(), body[v].operands.end(), [&](ValueId o) { return out[o]; });
  return out;
}

}  // namespace

Products::Products(const Graph& g, const ProductType& type, const Around* around)
    : g_(g),
      type_(type),
      around_(around),
      users_(users_of(g)),
      attended_(attention_operands(g, users_)),
      data_(g.nodes.size(), false) {
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    data_[v] = g[v].op == Op::input_
                   ? g[v].attributes.role != Role::parameter
                   : std::any_of(g[v].operands.begin(), g[v].operands.end(), [&](ValueId o) { return data_[o]; });
  if (!type.has_formats()) return;
  forward_ = around ? forward_in_step(g, *around) : values_of_forward_pass(g);
  find_precise();
  find_owners();
  // A training step updates parameters, or computes gradients of them.
  trains_ = around && around->trains;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    trains_ =
        trains_ || g[v].op == Op::update_ || (is_rounded_product(v) && kind_of(v) == ProductKind::weight_gradient);
}

bool Products::is_rounded_product(ValueId v) const {
  const Node& node = g_[v];
  const bool picks = node.op == Op::contract_gather_ || node.op == Op::contract_scatter_;
  const bool dense = node.op == Op::contract_ && !has_batch_letter(node);
  if (!picks && !dense) return false;
  // A value computed only from parameters counts as a parameter: it is not rounded until data is multiplied with it.
  const ValueId x = node.operands[0], y = node.operands[1];
  return (data_[x] || data_[y]) && is_f32(x) && is_f32(y);
}

bool Products::takes_parameter(ValueId product) const {
  const std::vector<ValueId>& o = g_[product].operands;
  return data_[o[0]] != data_[o[1]];
}

bool Products::attends(ValueId product, ValueId v) const {
  const Node& node = g_[product];
  return node.op == Op::contract_ && has_batch_letter(node) && is_f32(v) && attended_.contains(below_order(g_, v));
}

bool Products::attends(ValueId product) const {
  const std::vector<ValueId>& o = g_[product].operands;
  return std::any_of(o.begin(), o.end(), [&](ValueId v) { return attends(product, v); });
}

bool Products::is_summand(ValueId v) const {
  if (!is_rounded_product(v) || !takes_parameter(v) || users_[v].size() != 1 || users_[v][0] < 0) return false;
  const Node& sum = g_[users_[v][0]];
  return sum.op == Op::map_ && std::any_of(sum.operands.begin(), sum.operands.end(), [&](ValueId o) {
           return o > v && is_rounded_product(o) && takes_parameter(o) && g_[o].type.shape == g_[v].type.shape;
         });
}

bool Products::feeds_product(ValueId v) const {
  return std::any_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
    return u >= 0 && (is_rounded_product(u) || (is_view(g_[u].op) && feeds_product(u)));
  });
}

bool Products::takes_codes(ValueId v) const {
  const Node& node = g_[v];
  if (node.op != Op::contract_) return false;
  for (int side = 0; side < 2; ++side)
    for (const Dim& d : g_[node.operands[side]].type.shape)
      if (d.is_number() && d.number() > 1 && d.number() % 16 != 0) return false;
  return !precise_.contains(v);
}

void Products::find_precise() {
  std::set<ValueId> parameters, others;
  const auto is_dense = [&](ValueId v) { return g_[v].op == Op::contract_ && is_rounded_product(v); };
  const ValueId end = g_.nodes.size();
  for (ValueId v = 0; v < end; ++v) {
    if (!is_dense(v) || !forward_[v] || !is_reduced(v)) continue;
    precise_.insert(v);
    for (ValueId o : g_[v].operands) (data_[o] ? others : parameters).insert(below(o));
  }
  for (ValueId v = 0; v < end; ++v) {
    const auto& o = g_[v].operands;
    if (!is_dense(v) || (!parameters.contains(below(o[0])) && !parameters.contains(below(o[1])))) continue;
    precise_.insert(v);
    for (ValueId x : o)
      if (data_[x]) others.insert(below(x));
  }
  for (ValueId v = 0; v < end; ++v) {
    const auto& o = g_[v].operands;
    if (is_dense(v) && others.contains(below(o[0])) && others.contains(below(o[1]))) precise_.insert(v);
  }
}

bool Products::is_reduced(ValueId v) const {
  return std::any_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
    return u >= 0 && (g_[u].op == Op::reduce_ || (is_view(g_[u].op) && is_reduced(u)));
  });
}

std::optional<ProductKind> Products::kind_of(ValueId v) const {
  const std::vector<ValueId>& o = g_[v].operands;
  if (takes_parameter(v))
    return forward_[data_[o[0]] ? o[0] : o[1]] ? ProductKind::forward : ProductKind::input_gradient;
  if (forward_[o[0]] != forward_[o[1]]) return ProductKind::weight_gradient;
  return std::nullopt;
}

FormatRef Products::format_of(ValueId product, int side) const {
  const Node& node = g_[product];
  if (!type_.has_formats() || precise_.contains(product) || node.op == Op::contract_scatter_) return nullptr;
  const auto kind = kind_of(product);
  if (!kind) return nullptr;
  const OperandFormats& formats = type_.formats[ordinal(*kind)];
  const ValueId v = node.operands[side];
  if (data_[v]) return forward_[v] ? formats.activation : formats.gradient;
  return lies_in_format(v) && !is_held(g_, v) ? nullptr : formats.weight;
}

bool Products::lies_in_format(ValueId v) const {
  while (is_view(g_[v].op)) v = g_[v].operands[0];
  const Node& node = g_[v];
  return node.op == Op::cast_ && g_[node.operands[0]].op == Op::input_ && g_[node.operands[0]].type.element.format;
}

std::string Products::drawn_for(ValueId product, ValueId v) const {
  if (!is_random(v)) return {};
  if (takes_parameter(product)) return weight_of(product);
  for (const ValueId o : g_[product].operands) {
    const auto owner = owner_.find(below(o));
    if (owner != owner_.end()) return owner->second;
  }
  return {};
}

void Products::find_owners() {
  for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
    if (!is_rounded_product(v) || !takes_parameter(v)) continue;
    for (const ValueId o : g_[v].operands)
      if (data_[o]) owner_.try_emplace(below(o), weight_of(v));
  }
}

bool Products::is_random(ValueId v) const {
  if (!data_[v]) return type_.random.weight;
  return forward_[v] ? type_.random.activation : type_.random.gradient;
}

int64_t Products::rotation_of(ValueId product) const {
  const auto is_scaled = [](const FormatRef& f) { return f && !plain_scalar(*f) && !is_without_scale(*f); };
  if (!is_scaled(format_of(product, 0)) || !is_scaled(format_of(product, 1))) return 0;
  return type_.rotations[ordinal(*kind_of(product))];
}

void Products::require_fitted(ValueId product, ValueId v, const FormatRef& f) const {
  if (rotation_of(product) == 0 || (source_of_scale(v) == FieldSource::fitted && !is_learned_as(v, *f))) return;
  throw Error(Exit::user, fmt::format("an operand in '{}' is rotated, so that its scale must be fitted to it", f->name),
              "leave out rotations, or delayed, predicted and learned scales");
}

FieldSource Products::source_of_scale(ValueId v) const {
  const FieldSource source = recipe_source(v);
  return source == FieldSource::learned ? FieldSource::fitted : source;
}

FieldSource Products::recipe_source(ValueId v) const {
  if (!data_[v]) return type_.sources.weight;
  return forward_[v] ? type_.sources.activation : type_.sources.gradient;
}

bool Products::is_learned_as(ValueId v, const Format& f) const {
  if (!attended_.contains(below(v)) && recipe_source(v) != FieldSource::learned) return false;
  const FormatRef own = learned_format(g_, v);
  return own && own->hash == f.hash;
}

std::string Products::projection_of(ValueId v) const {
  const ValueId last = last_source(
      g_, v, [&](ValueId at) { return is_rounded_product(at) && takes_parameter(at); },
      [&](ValueId at) { return data_[at]; });
  return last < 0 ? fmt::format("{}", v) : weight_of(last);
}

std::string Products::weight_of(ValueId product) const {
  for (const ValueId o : g_[product].operands)
    if (!data_[o]) return parameter_of(o);
  return fmt::format("{}", product);
}

std::string Products::parameter_of(ValueId v) const {
  while (g_[v].op != Op::input_ && !g_[v].operands.empty()) v = g_[v].operands[0];
  return g_[v].attributes.name;
}

bool Products::is_without_scale(const Format& f) {
  const FieldType* t = plain_field(f);
  return t && t->is_float && t->has_sign && t->bits <= 8;
}

bool Products::products_alone_read(ValueId v) const {
  return g_[v].op != Op::input_ && std::all_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
           return u >= 0 && (is_rounded_product(u) || (is_view(g_[u].op) && products_alone_read(u)));
         });
}

}  // namespace lumen::graph
