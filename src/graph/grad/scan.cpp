// The gradient of a scan: a scan from the last step to the first, whose carries are gradients of carries. A step reads
// its initial carries and the results of its products, which the forward scan returns as additional outputs; all other
// values are recomputed. The gradient of a constant is summed over all steps: a product of sequences, or a sum of it,
// becomes one over all steps after the scan; other terms are accumulated in a carry.
//
//   forward   c' , y = f(c, s, k)                               for each step
//   step      dc, ds, dk = gradient of sum(c' * dc') + sum(y * dy)    (differentiate, on f's own graph)
#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/grad/rules.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

bool is_float_value(const Type& t) {
  return !t.element.format && is_float(t.element.scalar);
}

// A product or sum of a step, below views, that can be replaced by one over all steps.
struct Summed {
  ValueId root;
  std::vector<ValueId> views;  // above it, last first
};

std::optional<Summed> summed_over_steps(const Graph& g, ValueId v) {
  Summed s{v, {}};
  while (g[s.root].op == Op::reshape_ || g[s.root].op == Op::permute_) {
    s.views.push_back(s.root);
    s.root = g[s.root].operands[0];
  }
  const Node& node = g[s.root];
  if (node.op == Op::contract_ || (node.op == Op::reduce_ && node.attributes.reduction == Reduction::sum)) return s;
  return std::nullopt;
}

bool is_sum_of_two(const Node& node) {
  if (node.op != Op::map_ || node.operands.size() != 2) return false;
  const Formula& f = node.attributes.formula;
  const ScalarNode& out = f.nodes[f.outputs[0]];
  return out.op == ScalarOp::add_ && f.nodes[out.args[0]].op == ScalarOp::input &&
         f.nodes[out.args[1]].op == ScalarOp::input && f.nodes[out.args[0]].index != f.nodes[out.args[1]].index;
}

void collect_terms(const Graph& g, ValueId v, std::vector<ValueId>* terms) {
  const Node& node = g[v];
  const bool parts =
      is_sum_of_two(node) && g[node.operands[0]].type == node.type && g[node.operands[1]].type == node.type;
  if (!parts) {
    terms->push_back(v);
    return;
  }
  for (const ValueId o : node.operands) collect_terms(g, o, terms);
}

class ScanGradient {
 public:
  ScanGradient(Reverse& r, ValueId v, const std::vector<std::pair<int, ValueId>>& arriving)
      : r_(r),
        v_(v),
        scan_(r.build.graph[v]),
        forward_(without_calls(*scan_.attributes.callee)),
        inputs_(forward_.inputs()),
        carries_(scan_.attributes.carries),
        stepped_(carries_ + scan_.attributes.sequences) {
    for (const auto& [k, gradient] : arriving) {
      const ValueId wide = r_.build.convert(gradient, Scalar::f32);
      const auto [at, fresh] = arriving_.emplace(k, wide);
      if (!fresh) at->second = r_.build.add(at->second, wide);
    }
  }

  void run() {
    if (arriving_.empty()) return;
    differentiate_step();
    take_products();
    write_body();
    const ValueId back = append();
    hand_out(back);
  }

 private:
  Type f32_of(ValueId v) const { return {forward_[v].type.shape, {Scalar::f32, nullptr}}; }

  // ---- one step: the forward body, a loss with the required gradients, and those gradients
  void differentiate_step() {
    Builder b(step_);
    step_.name = forward_.name + ".gradient";
    std::vector<ValueId> at(forward_.nodes.size(), -1);
    for (const ValueId v : inputs_) at[v] = b.input(forward_[v].attributes.name, Role::data, forward_[v].type);
    std::map<int, ValueId> seeds;  // by result
    for (int k = 0; k < std::ssize(forward_.results); ++k) {
      const bool wanted = k < carries_ ? is_float_value(forward_[forward_.results[k]].type) : arriving_.contains(k);
      if (wanted) seeds[k] = b.input(fresh_name("arriving"), Role::data, f32_of(forward_.results[k]));
    }
    for (ValueId v = 0; v < std::ssize(forward_.nodes); ++v) {
      if (at[v] >= 0) continue;
      Node copy = forward_[v];
      for (ValueId& o : copy.operands) o = at[o];
      step_.nodes.push_back(std::move(copy));
      at[v] = step_.nodes.size() - 1;
      forward_of_[at[v]] = v;
    }
    const ValueId loss = loss_of(b, at, seeds);
    std::vector<ValueId> of;
    for (int i = 0; i < std::ssize(inputs_); ++i) {
      const bool carried = i < carries_;
      if (!is_float_value(forward_[inputs_[i]].type) || (!carried && !r_.active(scan_.operands[i]))) continue;
      wanted_.push_back(i);
      of.push_back(at[inputs_[i]]);
    }
    step_.results = differentiate(step_, loss, of);
    step_.result_names.assign(step_.results.size(), "");
    for (const auto& [k, seed] : seeds) seed_of_[step_[seed].attributes.name] = k;
  }

  ValueId loss_of(Builder& b, const std::vector<ValueId>& at, const std::map<int, ValueId>& seeds) const {
    ValueId loss = b.scalar(0);
    for (const auto& [k, seed] : seeds) {
      const ValueId product = b.mul(b.convert(at[forward_.results[k]], Scalar::f32), seed);
      std::vector<int> axes(step_[seed].type.shape.size());
      for (size_t d = 0; d < axes.size(); ++d) axes[d] = d;
      const ValueId sum = axes.empty() ? product : b.reshape(b.reduce(product, Reduction::sum, axes), {});
      loss = b.add(loss, sum);
    }
    return loss;
  }

  std::string fresh_name(std::string_view what) {
    std::string name;
    do name = fmt::format("{}.{}", what, named_++);
    while (forward_.find_input(name) >= 0);
    return name;
  }

  // ---- results of forward products that gradients read are passed in rather than recomputed
  void take_products() {
    std::vector<bool> read(step_.nodes.size()), given(step_.nodes.size());
    for (const ValueId v : step_.results) read[v] = true;
    for (ValueId v = step_.nodes.size(); v-- > 0;) {
      if (!read[v]) continue;
      const auto forward = forward_of_.find(v);
      const Op op = step_[v].op;
      given[v] = forward != forward_of_.end() && (op == Op::contract_ || op == Op::contract_gather_);
      if (given[v]) continue;
      for (const ValueId o : step_[v].operands) read[o] = true;
    }
    Rewriter r(step_);
    for (ValueId v = 0; v < std::ssize(step_.nodes); ++v) {
      if (!read[v]) continue;
      if (!given[v]) {
        r.keep(v);
        continue;
      }
      const std::string name = fresh_name("given");
      r.replace(v, r.build.input(name, Role::data, step_[v].type));
      given_of_[name] = forward_of_.at(v);
    }
    step_ = r.finish();
    simplify(step_);
  }

  // ---- the body of the backward scan
  // Inputs of step_ with readers become inputs of the scan's body.
  void write_body() {
    for (size_t w = 0; w < wanted_.size(); ++w) {
      const int i = wanted_[w];
      const ValueId gradient = step_.results[w];
      if (i < stepped_) continue;
      const Node& node = step_[gradient];
      if (node.op == Op::constant_ && node.attributes.data == std::vector<double>{0}) continue;
      std::vector<ValueId> terms;
      collect_terms(step_, gradient, &terms);
      for (const ValueId term : terms) {
        if (auto summed = summed_over_steps(step_, term))
          behind_.push_back({i, std::move(*summed)});
        else
          accumulated_[i].push_back(term);
      }
    }
    for (const Behind& b : behind_)
      for (const ValueId o : step_[b.summed.root].operands) need_from_all_steps(o);
    std::vector<bool> read = what_is_read();

    Rewriter r(step_);
    Builder& b = r.build;
    const auto keep_input = [&](const std::string& name) {
      const ValueId input = step_.find_input(name);
      if (input >= 0) return r.keep(input);
      return ValueId{-1};
    };
    // Carries: gradients of float carries, then sums.
    for (const auto& [name, k] : seed_of_)
      if (k < carries_) carried_.emplace_back(k, name);
    std::sort(carried_.begin(), carried_.end());
    for (const auto& [k, name] : carried_)
      if (keep_input(name) < 0) b.input(name, Role::data, f32_of(forward_.results[k]));
    std::map<int, ValueId> sums;
    for (const auto& [i, terms] : accumulated_) sums[i] = b.input(fresh_name("sum"), Role::data, f32_of(inputs_[i]));
    // Sequences.
    bool any = false;
    for (const ValueId v : step_.inputs()) {
      const std::string& name = step_[v].attributes.name;
      if (r[v] >= 0 || !read[v] || is_constant(name)) continue;
      r.keep(v);
      sequences_.push_back(name);
      any = true;
    }
    if (!any) {
      const std::string& name = forward_[inputs_[carries_]].attributes.name;
      b.input(name, Role::data, forward_[inputs_[carries_]].type);
      sequences_.push_back(name);
    }
    for (const ValueId v : step_.inputs()) {
      if (r[v] >= 0 || !read[v]) continue;
      r.keep(v);
      constants_.push_back(step_[v].attributes.name);
    }
    for (ValueId v = 0; v < std::ssize(step_.nodes); ++v)
      if (r[v] < 0 && read[v]) r.keep(v);
    body_ = std::move(r.to);
    body_.results.clear();
    for (const auto& [k, name] : carried_) {
      const size_t w = std::find(wanted_.begin(), wanted_.end(), k) - wanted_.begin();
      body_.results.push_back(r[step_.results[w]]);
    }
    Builder sum(body_);
    for (const auto& [i, terms] : accumulated_) {
      ValueId total = sums[i];
      for (const ValueId term : terms) total = sum.add(total, r[term]);
      body_.results.push_back(total);
    }
    for (size_t w = 0; w < wanted_.size(); ++w)
      if (wanted_[w] >= carries_ && wanted_[w] < stepped_) body_.results.push_back(r[step_.results[w]]);
    for (const auto& [v, at] : outputs_) body_.results.push_back(r[v]);
    int number = body_.results.size() - outputs_.size();
    for (auto& [v, at] : outputs_) at = number++;
    body_.result_names.assign(body_.results.size(), "");
  }

  bool is_constant(const std::string& name) const {
    const ValueId v = forward_.find_input(name);
    return v >= 0 && std::find(inputs_.begin(), inputs_.end(), v) - inputs_.begin() >= stepped_;
  }
  bool is_stepped_input(ValueId v) const {
    return step_[v].op == Op::input_ && !is_constant(step_[v].attributes.name) && !is_carried_seed(v);
  }
  bool is_carried_seed(ValueId v) const {
    const auto seed = seed_of_.find(step_[v].attributes.name);
    return seed != seed_of_.end() && seed->second < carries_;
  }

  // An input is already a sequence; views of one become views of the sequence; other values become outputs.
  void need_from_all_steps(ValueId v) {
    while (step_[v].op == Op::reshape_ || step_[v].op == Op::permute_) v = step_[v].operands[0];
    if (is_stepped_input(v))
      stacked_inputs_.push_back(v);
    else
      outputs_.emplace(v, -1);
  }

  std::vector<bool> what_is_read() const {
    std::vector<bool> read(step_.nodes.size());
    for (size_t w = 0; w < wanted_.size(); ++w)
      if (wanted_[w] < stepped_) read[step_.results[w]] = true;
    for (const auto& [i, terms] : accumulated_)
      for (const ValueId term : terms) read[term] = true;
    for (const auto& [v, at] : outputs_) read[v] = true;
    for (ValueId v = step_.nodes.size(); v-- > 0;)
      if (read[v])
        for (const ValueId o : step_[v].operands) read[o] = true;
    return read;
  }

  // ---- the forward scan returns more, and the backward one follows all other nodes
  ValueId sequence(const std::string& name) {
    const auto known = given_.find(name);
    if (known != given_.end()) return known->second;
    ValueId value = -1;
    if (const auto seed = seed_of_.find(name); seed != seed_of_.end()) {
      value = arriving_.at(seed->second);
    } else if (const auto product = given_of_.find(name); product != given_of_.end()) {
      value = further_output(product->second);
    } else {
      const ValueId input = forward_.find_input(name);
      const int i = std::find(inputs_.begin(), inputs_.end(), input) - inputs_.begin();
      LUMEN_CHECK(input >= 0 && i < stepped_, "no sequence '{}' for the gradient of {}", name, forward_.name);
      value = i < carries_ ? further_output(input) : scan_.operands[i];
    }
    return given_[name] = value;
  }
  ValueId further_output(ValueId of_forward) {
    const auto known = std::find(forward_.results.begin() + carries_, forward_.results.end(), of_forward);
    const int number = known - forward_.results.begin();
    if (known == forward_.results.end()) {
      forward_.results.push_back(of_forward);
      forward_.result_names.emplace_back();
      r_.build.graph[v_].attributes.callee = std::make_shared<const Graph>(forward_);
    }
    return r_.build.result(v_, number);
  }

  ValueId append() {
    std::vector<ValueId> operands;
    for (const auto& [k, name] : carried_) {
      const auto arriving = arriving_.find(k);
      operands.push_back(arriving != arriving_.end() ? arriving->second
                                                     : r_.build.constant(f32_of(forward_.results[k]), {0}));
    }
    for (const auto& [i, terms] : accumulated_) operands.push_back(r_.build.constant(f32_of(inputs_[i]), {0}));
    const int carries = operands.size();
    for (const std::string& name : sequences_) operands.push_back(sequence(name));
    for (const std::string& name : constants_) {
      const ValueId input = forward_.find_input(name);
      operands.push_back(scan_.operands[std::find(inputs_.begin(), inputs_.end(), input) - inputs_.begin()]);
    }
    for (const ValueId v : stacked_inputs_) sequence(step_[v].attributes.name);
    const ValueId back = r_.build.scan(std::make_shared<const Graph>(std::move(body_)), std::move(operands), carries,
                                       int(sequences_.size()), !scan_.attributes.reverse);
    r_.build.graph[back].label = scan_.label;
    return back;
  }

  void give(int operand, ValueId gradient) {
    const ValueId to = scan_.operands[operand];
    if (r_.active(to)) r_.add(to, r_.build.convert(gradient, r_.build.type(to).element.scalar));
  }

  void hand_out(ValueId back) {
    int number = 0;
    for (const auto& [k, name] : carried_) {
      const int result = number++;
      if (r_.active(scan_.operands[k])) give(k, r_.build.result(back, result));
    }
    for (const auto& [i, terms] : accumulated_) give(i, r_.build.result(back, number++));
    for (const int i : wanted_)
      if (i >= carries_ && i < stepped_) give(i, r_.build.result(back, number++));
    for (const Behind& b : behind_) give(b.operand, behind(b.summed, back));
  }

  // A value of the step for all steps, with a leading axis of steps.
  ValueId stacked(ValueId v, ValueId back) {
    const auto known = stacked_.find(v);
    if (known != stacked_.end()) return known->second;
    ValueId value = -1;
    if (step_[v].op == Op::reshape_ || step_[v].op == Op::permute_) {
      const ValueId below = stacked(step_[v].operands[0], back);
      value = view_of_steps(step_[v], below);
    } else if (is_stepped_input(v)) {
      value = sequence(step_[v].attributes.name);
    } else {
      value = r_.build.result(back, outputs_.at(v));
    }
    return stacked_[v] = value;
  }
  ValueId view_of_steps(const Node& view, ValueId below) {
    if (view.op == Op::reshape_) {
      Shape shape = view.type.shape;
      shape.insert(shape.begin(), r_.build.type(below).shape[0]);
      return r_.build.reshape(below, std::move(shape));
    }
    std::vector<int> axes = {0};
    for (const int axis : view.attributes.axes) axes.push_back(axis + 1);
    return r_.build.permute(below, std::move(axes));
  }

  ValueId behind(const Summed& s, ValueId back) {
    const Node& root = step_[s.root];
    ValueId value = -1;
    if (root.op == Op::contract_) {
      std::vector<std::string> indices = root.attributes.indices;
      char letter = 'a';
      const auto taken = [&](char c) {
        return std::any_of(indices.begin(), indices.end(),
                           [&](const std::string& i) { return i.find(c) != std::string::npos; });
      };
      while (taken(letter)) ++letter;
      value = r_.build.contract(stacked(root.operands[0], back), stacked(root.operands[1], back), letter + indices[0],
                                letter + indices[1], indices[2]);
    } else {
      std::vector<int> axes = {0};
      for (const int axis : root.attributes.axes) axes.push_back(axis + 1);
      value = r_.build.reduce(stacked(root.operands[0], back), Reduction::sum, std::move(axes));
      value = r_.build.reshape(value, root.type.shape);
    }
    for (size_t i = s.views.size(); i-- > 0;) value = r_.build.view(step_[s.views[i]], value);
    return value;
  }

  struct Behind {
    int operand;
    Summed summed;
  };

  Reverse& r_;
  ValueId v_;
  Node scan_;
  Graph forward_;
  std::vector<ValueId> inputs_;  // of forward_, by operand
  int carries_, stepped_;
  std::map<int, ValueId> arriving_;  // by result, f32
  Graph step_, body_;
  int named_ = 0;
  std::map<ValueId, ValueId> forward_of_;  // an original node of step_ -> of forward_
  std::vector<int> wanted_;                // operands whose gradients are step_'s results
  std::map<std::string, int> seed_of_;     // an input of step_ -> the result of forward_ whose gradient it is
  std::map<std::string, ValueId> given_of_;
  std::vector<Behind> behind_;
  std::map<int, std::vector<ValueId>> accumulated_;  // by operand: values of step_ to be summed in a carry
  std::vector<ValueId> stacked_inputs_;
  std::map<ValueId, int> outputs_;  // values of step_ -> index of the backward scan's result
  std::vector<std::pair<int, std::string>> carried_;
  std::vector<std::string> sequences_, constants_;
  std::map<std::string, ValueId> given_;  // sequences by name of an input of step_
  std::map<ValueId, ValueId> stacked_;
};

}  // namespace

void scan_gradient(Reverse& r, ValueId v, const std::vector<std::pair<int, ValueId>>& arriving) {
  ScanGradient(r, v, arriving).run();
}

}  // namespace lumen::graph
