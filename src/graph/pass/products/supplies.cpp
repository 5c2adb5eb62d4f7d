#include "graph/pass/products/supplies.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/operand_formats.h"

namespace lumen::graph {
namespace {

// The body with its inputs in the given order of names.
Graph with_inputs(const Graph& body, const std::vector<std::string>& order) {
  Rewriter r(body);
  for (const std::string& name : order) r.keep(body.find_input(name));
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
    if (body[v].op != Op::input_) r.keep(v);
  return r.finish();
}

}  // namespace

Supplies::Draws& Supplies::draws(const std::string& seed) {
  Draws& known = draws_[seed];
  if (known.seed < 0)
    known.seed = around_ ? given("seed", around_->seeds_of_steps(seed, steps_), true)
                         : b_.input(seed, Role::data, {{}, {Scalar::u32, nullptr}});
  return known;
}

ValueId Supplies::drawn(const std::string& seed, const Shape& shape) {
  Draws& from = draws(seed);
  return b_.random(from.seed, from.salt++, shape);
}

ValueId Supplies::seeds_of_steps(const std::string& seed, const Dim& steps) {
  Formula whole;
  whole.inputs = {Scalar::f32};
  whole.outputs = {whole.convert(
      ScalarOp::cast_, Scalar::u32,
      whole.op(ScalarOp::mul_, whole.input(0), whole.constant(Scalar::f32, 0x1p24)))};  // a draw has 24 bits
  return b_.map(whole, {drawn(seed, {steps})});
}

ValueId Supplies::history(const std::string& name, int64_t length) {
  const auto [known, is_new] = histories_.try_emplace(name, -1);
  if (around_) {
    if (is_new) known->second = constant(around_->history(name, length));
    return known->second;
  }
  if (is_new) known->second = b_.input(name, Role::state, {{length}, {}});
  return largest_of_history(b_, known->second);
}

void Supplies::follow(const std::string& name, ValueId newest) {
  if (around_)
    newest_.emplace_back(name, b_.reshape(newest, {}));
  else
    follow_history(b_, histories_.at(name), newest);
}

ValueId Supplies::constant(ValueId outside) {
  for (const Given& g : given_)
    if (g.outside == outside && !g.of_steps) return g.inside;
  return given("known", outside, false);
}

ValueId Supplies::outside(ValueId constant) const {
  for (const Given& g : given_)
    if (!g.of_steps && g.inside == constant) return g.outside;
  return -1;
}

std::string Supplies::name_of(const std::string& weight, const char* what) {
  if (around_) return around_->name_of(weight, what);
  const int before = names_[fmt::format("{}.{}", weight, what)]++;
  return before == 0 ? fmt::format("{}{}.{}", kHistoryState, weight, what)
                     : fmt::format("{}{}.{}.{}", kHistoryState, weight, before + 1, what);
}

ValueId Supplies::given(const std::string& what, ValueId outside, bool of_steps) {
  std::string name;
  do name = fmt::format("{}.{}", what, names_[what]++);
  while (b_.graph.find_input(name) >= 0);
  Type type = around_->b_.type(outside);
  if (of_steps) type.shape.erase(type.shape.begin());
  given_.push_back({name, b_.input(name, Role::data, type), outside, of_steps});
  return given_.back().inside;
}

ValueId Supplies::scan(Graph body, const std::vector<ValueId>& operands, const Node& before) const {
  Attributes a = before.attributes;
  const std::vector<ValueId> inputs = body.inputs();
  const int stepped = a.carries + a.sequences, there = std::ssize(operands);
  std::vector<std::string> order;
  std::vector<ValueId> all;
  const auto add = [&](int from, int to, bool of_steps) {
    for (int i = from; i < to; ++i) {
      order.push_back(body[inputs[i]].attributes.name);
      all.push_back(operands[i]);
    }
    for (const Given& g : given_) {
      if (g.of_steps != of_steps) continue;
      order.push_back(g.input);
      all.push_back(g.outside);
      a.sequences += of_steps ? 1 : 0;
    }
  };
  add(0, stepped, true);
  add(stepped, there, false);
  const int outputs = std::ssize(body.results);
  for (const auto& [name, value] : newest_) {
    body.results.push_back(value);
    body.result_names.emplace_back();
  }
  LUMEN_CHECK(inputs.size() == order.size(), "{} inputs of a body with {} operands", inputs.size(), order.size());
  Builder& b = around_->b_;
  const ValueId made = b.scan(std::make_shared<const Graph>(with_inputs(body, order)), std::move(all), a.carries,
                              a.sequences, a.reverse);
  b.graph[made].label = before.label;
  for (size_t i = 0; i < newest_.size(); ++i) {
    const ValueId steps = b.result(made, outputs + int(i));
    around_->follow(newest_[i].first, b.reshape(b.reduce(steps, Reduction::max, {0}), {}));
  }
  return made;
}

}  // namespace lumen::graph
