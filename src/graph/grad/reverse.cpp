// The driver: values are visited in reverse order, each after all its users have added to its gradient. Calls are
// expanded at the end of the graph, and the gradient of their results flows through that copy (simplify shares it with
// the inlined original), so that values of the caller keep their numbers. Proved by tests/graph/grad/grad_test.cpp.
#include "graph/grad/reverse.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/differentiation.h"
#include "graph/grad/rules.h"
#include "graph/ir/rewrite.h"

namespace lumen::graph {
namespace {

// Pairwise summation.
template <typename T, typename Add>
T in_pairs(std::vector<T> level, const Add& add) {
  while (level.size() > 1) {
    std::vector<T> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(add(level[i], level[i + 1]));
    if (level.size() % 2 != 0) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

}  // namespace

void Reverse::set_active(ValueId v) {
  if (v >= std::ssize(active_)) active_.resize(v + 1);
  active_[v] = true;
}

void Reverse::add(ValueId v, ValueId gradient) {
  if (!active(v)) return;
  if (v >= std::ssize(added_)) added_.resize(v + 1);
  LUMEN_CHECK(build.type(gradient).shape == build.type(v).shape, "the gradient of %{} is {}", v,
              print(build.type(gradient)));
  added_[v].push_back(gradient);
}

// One map adds all contributions pairwise, which minimizes the rounding error and takes one pass over memory. Products
// are added by maps of two operands, because each can be an epilogue of its product.
ValueId Reverse::take(ValueId v) {
  if (v >= std::ssize(added_) || added_[v].empty()) return -1;
  std::vector<ValueId> parts = std::move(added_[v]);
  added_[v].clear();
  join_pads(&parts);
  if (parts.size() == 1) return parts[0];
  const auto is_product = [&](ValueId p) {
    while (build.graph[p].op == Op::reshape_ || build.graph[p].op == Op::permute_) p = build.graph[p].operands[0];
    return build.graph[p].op == Op::contract_;
  };
  if (std::all_of(parts.begin(), parts.end(), is_product))
    return in_pairs(parts, [&](ValueId a, ValueId b) { return build.add(a, b); });
  Formula sum;
  sum.inputs.assign(parts.size(), build.type(parts[0]).element.scalar);
  std::vector<int> inputs;
  for (size_t i = 0; i < parts.size(); ++i) inputs.push_back(sum.input(i));
  sum.outputs = {in_pairs(inputs, [&](int a, int b) { return sum.op(ScalarOp::add_, a, b); })};
  return build.map(std::move(sum), parts);
}

void Reverse::settle(ValueId end) {
  for (ValueId v = 0; v < std::min<ValueId>(end, added_.size()); ++v) {
    if (added_[v].size() < 2 || build.graph[added_[v][0]].op == Op::pad_) continue;
    const ValueId sum = take(v);
    added_[v] = {sum};
  }
}

// Slices that partition a value along one axis give it gradients that do not overlap: concatenate them, instead of
// adding tensors that are mostly zero.
void Reverse::join_pads(std::vector<ValueId>* parts) {
  if (parts->size() < 2) return;
  const Shape full = build.type((*parts)[0]).shape;
  int axis = -1;
  std::map<int64_t, ValueId> pieces;  // by start
  for (ValueId part : *parts) {
    const Node& pad = build.graph[part];
    if (pad.op != Op::pad_) return;
    for (size_t d = 0; d < full.size(); ++d) {
      if (build.type(pad.operands[0]).shape[d] == full[d]) continue;
      if (axis >= 0 && axis != static_cast<int>(d)) return;
      axis = d;
    }
    if (axis < 0 || pad.attributes.strides[axis] != 1 || !full[axis].is_number()) return;
    if (!pieces.emplace(pad.attributes.starts[axis], pad.operands[0]).second) return;
  }
  std::vector<ValueId> ordered;
  int64_t end = 0;
  for (const auto& [start, piece] : pieces) {
    const Dim& extent = build.type(piece).shape[axis];
    if (start != end || !extent.is_number()) return;
    end += extent.number();
    ordered.push_back(piece);
  }
  if (end == full[axis].number()) *parts = {build.concat(ordered, axis)};
}

ValueId Reverse::reduce_to(ValueId g, const Shape& shape) {
  const Shape from = build.type(g).shape;
  if (from == shape) return g;
  const size_t shift = from.size() - shape.size();
  std::vector<int> axes;
  for (size_t d = 0; d < from.size(); ++d) {
    if (d < shift || (shape[d - shift] == Dim(1) && from[d] != Dim(1))) axes.push_back(d);
  }
  if (!axes.empty()) g = build.reduce(g, Reduction::sum, axes);
  return build.type(g).shape == shape ? g : build.reshape(g, shape);
}

std::vector<ValueId> Reverse::used_operands(Formula* formula, const std::vector<ValueId>& operands) {
  *formula = simplify_formula(*formula);
  std::vector<ValueId> used;
  std::vector<Scalar> inputs;
  for (ScalarNode& n : formula->nodes) {
    if (n.op != ScalarOp::input) continue;
    const auto known = std::find(used.begin(), used.end(), operands[n.index]);
    if (known == used.end()) {
      used.push_back(operands[n.index]);
      inputs.push_back(formula->inputs[n.index]);
      n.index = used.size() - 1;
    } else {
      n.index = known - used.begin();
    }
  }
  formula->inputs = std::move(inputs);
  return used;
}

ValueId Reverse::lean_map(Formula formula, const std::vector<ValueId>& operands) {
  std::vector<ValueId> used = used_operands(&formula, operands);
  formula = simplify_formula(formula);  // merged inputs may have made nodes equal
  const ScalarNode& output = formula.nodes[formula.outputs[0]];
  if (output.op == ScalarOp::input) return used[output.index];
  return build.map(std::move(formula), std::move(used));
}

Differentiation::Differentiation(Graph& g, ValueId loss, const std::vector<ValueId>& with_respect_to)
    : g_(g), r_(g), ends_{loss} {
  for (ValueId v : with_respect_to) r_.set_active(v);
  end_ = g.nodes.size();
  spread(0, end_);
}

void Differentiation::sweep(ValueId begin, ValueId end, const std::vector<ValueId>& wanted,
                            std::vector<ValueId>* gradients) {
  for (ValueId v = end; v-- > begin;) {
    if (!r_.active(v)) continue;
    const Node node = g_[v];
    if (node.op == Op::call_) {
      through_call(v, node);
      continue;
    }
    if (node.op == Op::scan_) {
      scan_gradient(r_, v, arriving_at(v, node));
      continue;
    }
    const ValueId gradient = r_.take(v);
    if (gradient < 0) continue;
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (wanted[k] == v) (*gradients)[k] = gradient;
    }
    if (const auto attention = attentions_.find(v); attention != attentions_.end()) {
      attention_gradient(r_, attention->second, gradient);
    } else if (node.op == Op::result_) {
      by_result_[{node.operands[0], node.attributes.index}] = gradient;
    } else if (node.op == Op::reduce_ && node.attributes.reduction == Reduction::max &&
               shift_cancels(g_, v, end_, ends_)) {
      continue;
    } else {
      gradient_rule(node.op)(r_, v, gradient);
    }
  }
}

void Differentiation::spread(ValueId begin, ValueId end) {
  for (Attention& a : find_attention(g_, users_of(g_), begin, true)) attentions_[a.output] = std::move(a);
  for (ValueId v = begin; v < end; ++v) {
    const auto& operands = g_[v].operands;
    if (std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return r_.active(o); })) r_.set_active(v);
  }
  r_.count_uses(begin, end);
}

void Differentiation::sweep_appended(ValueId begin, ValueId end, const std::vector<ValueId>& results,
                                     const std::vector<ValueId>& read, const std::vector<ValueId>& arriving) {
  spread(begin, end);
  for (size_t k = 0; k < read.size(); ++k) r_.add(read[k], arriving[k]);
  const ValueId outer_end = std::exchange(end_, end);
  const std::vector<ValueId> outer_ends = std::exchange(ends_, results);
  sweep(begin, end, {}, nullptr);
  end_ = outer_end;
  ends_ = outer_ends;
}

std::vector<std::pair<int, ValueId>> Differentiation::arriving_at(ValueId v, const Node& node) {
  const ValueId direct = r_.take(v);  // a call or scan read as a value is its first result
  std::vector<std::pair<int, ValueId>> arriving;
  if (direct >= 0) arriving.emplace_back(0, direct);
  for (int k = 0; k < std::ssize(node.attributes.callee->results); ++k) {
    const auto found = by_result_.find({v, k});
    if (found != by_result_.end()) arriving.emplace_back(k, found->second);
  }
  return arriving;
}

void Differentiation::through_call(ValueId v, const Node& node) {
  const Graph& callee = *node.attributes.callee;
  const std::vector<std::pair<int, ValueId>> arriving = arriving_at(v, node);
  if (arriving.empty()) return;
  const ValueId begin = g_.nodes.size();
  const std::vector<ValueId> results = expand_call(g_, callee, node.operands);
  const ValueId end = g_.nodes.size();
  std::vector<ValueId> read, gradients;
  for (const auto& [k, gradient] : arriving) {
    read.push_back(results[k]);
    gradients.push_back(gradient);
  }
  sweep_appended(begin, end, results, read, gradients);
}

void check_loss(const Graph& g, ValueId loss) {
  LUMEN_CHECK(loss >= 0 && loss < std::ssize(g.nodes), "no value %{}", loss);
  const Type& type = g[loss].type;
  if (!type.shape.empty() || type.element.format || !is_float(type.element.scalar)) {
    throw user_error("differentiate: the loss must be one number, not {}", print(type));
  }
}

void complete_gradients(Builder& build, const std::vector<ValueId>& with_respect_to, std::vector<ValueId>* gradients) {
  for (size_t k = 0; k < gradients->size(); ++k) {
    ValueId& gradient = (*gradients)[k];
    const Shape shape = build.type(with_respect_to[k]).shape;
    if (gradient < 0) gradient = build.constant({shape, {Scalar::f32, nullptr}}, {0});
    gradient = build.convert(gradient, Scalar::f32);
  }
}

std::vector<ValueId> differentiate(Graph& g, ValueId loss, const std::vector<ValueId>& with_respect_to) {
  check_loss(g, loss);
  drop_chunks(g);  // those that were to be taken are scans of their own by now
  Differentiation d(g, loss, with_respect_to);
  Reverse& r = d.reverse();
  std::vector<ValueId> gradients(with_respect_to.size(), -1);
  r.add(loss, r.build.scalar(1, g[loss].type.element.scalar));
  d.sweep(0, loss + 1, with_respect_to, &gradients);
  complete_gradients(r.build, with_respect_to, &gradients);
  return gradients;
}

}  // namespace lumen::graph
