// hoist_steps: a value of a step that depends on no carry is computed for all steps at once by the same operators with
// a leading axis of steps, where that keeps the order of sums. Proved by tests/graph/steps/scan_test.cpp.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"
#include "graph/steps/steps.h"

namespace lumen::graph {

namespace {

// A value of the body outside of it: with a leading axis of steps, or the same in all steps.
struct Outside {
  ValueId value = -1;
  bool steps = false;
};

bool is_letter_free(const std::vector<std::string>& indices, char c) {
  return std::none_of(indices.begin(), indices.end(),
                      [&](const std::string& i) { return i.find(c) != std::string::npos; });
}

// Copies nodes of one body into the graph that contains the scan.
class Lifter {
 public:
  Lifter(Builder& build, const Graph& body, const Node& scan, const std::vector<ValueId>& operands)
      : b_(build),
        body_(body),
        known_(body.nodes.size()),
        steps_(build.type(operands[scan.attributes.carries]).shape[0]) {
    const std::vector<ValueId> inputs = body.inputs();
    for (int i = scan.attributes.carries; i < std::ssize(inputs); ++i)
      known_[inputs[i]] = Outside{operands[i], i < scan.attributes.carries + scan.attributes.sequences};
  }

  // nullopt if an operator has no such form.
  std::optional<Outside> lift(ValueId v) {
    if (known_[v]) return known_[v];
    std::vector<Outside> operands;
    bool steps = false;
    for (const ValueId o : body_[v].operands) {
      const std::optional<Outside> operand = lift(o);
      if (!operand) return std::nullopt;
      operands.push_back(*operand);
      steps = steps || operand->steps;
    }
    const ValueId made = steps ? for_all_steps(body_[v], operands) : copy(body_[v], operands);
    if (made < 0) return std::nullopt;
    if (b_.graph[made].label.empty()) b_.graph[made].label = body_[v].label;
    return known_[v] = Outside{made, steps};
  }

 private:
  ValueId copy(const Node& node, const std::vector<Outside>& operands) {
    if (node.op == Op::input_ || node.op == Op::scan_ || node.op == Op::result_ || node.op == Op::call_) return -1;
    Node one = node;
    one.operands.clear();
    for (const Outside& o : operands) one.operands.push_back(o.value);
    b_.graph.nodes.push_back(std::move(one));
    return b_.graph.nodes.size() - 1;
  }

  Shape with_steps(const Shape& shape) const {
    Shape all = shape;
    all.insert(all.begin(), steps_);
    return all;
  }
  // Shape: steps, then axes of 1 up to the rank, then the shape of one step.
  ValueId aligned(const Outside& o, size_t rank) {
    Shape shape = b_.type(o.value).shape;
    if (!o.steps || shape.size() == rank + 1) return o.value;
    shape.insert(shape.begin() + 1, rank + 1 - shape.size(), Dim(1));
    return b_.reshape(o.value, shape);
  }

  ValueId for_all_steps(const Node& node, const std::vector<Outside>& o) {
    const size_t rank = node.type.shape.size();
    const ValueId a = o[0].value;
    std::vector<ValueId> values;
    std::vector<int> axes;
    std::vector<int64_t> starts = node.attributes.starts, strides = node.attributes.strides;
    switch (node.op) {
      case Op::map_:
        for (const Outside& operand : o) values.push_back(aligned(operand, rank));
        return b_.map(node.attributes.formula, std::move(values));
      case Op::contract_:
        return product(node, o);
      case Op::reduce_:
        for (const int axis : node.attributes.axes) axes.push_back(axis + 1);
        return b_.reduce(a, node.attributes.reduction, std::move(axes));
      case Op::reshape_:
        return b_.reshape(a, with_steps(node.type.shape));
      case Op::permute_:
        axes = {0};
        for (const int axis : node.attributes.axes) axes.push_back(axis + 1);
        return b_.permute(a, std::move(axes));
      case Op::broadcast_:
        return b_.broadcast(aligned(o[0], rank), with_steps(node.type.shape));
      case Op::slice_:
      case Op::pad_:
        starts.insert(starts.begin(), 0);
        strides.insert(strides.begin(), 1);
        return node.op == Op::slice_ ? b_.slice(a, std::move(starts), with_steps(node.type.shape), std::move(strides))
                                     : b_.pad(a, with_steps(node.type.shape), std::move(starts), std::move(strides));
      case Op::gather_:
        return o[0].steps ? -1 : b_.gather(a, o[1].value);
      case Op::concat_:
        if (!std::all_of(o.begin(), o.end(), [](const Outside& part) { return part.steps; })) return -1;
        for (const Outside& part : o) values.push_back(part.value);
        return b_.concat(std::move(values), node.attributes.axis + 1);
      case Op::cast_:
        if (node.type.element.format || b_.type(a).element.format) return -1;
        return b_.cast(a, node.type.element);
      default:
        return -1;
    }
  }

  ValueId product(const Node& node, const std::vector<Outside>& o) {
    std::vector<std::string> indices = node.attributes.indices;
    char step = 'a';
    while (step < 'z' && !is_letter_free(indices, step)) ++step;
    if (!is_letter_free(indices, step)) return -1;
    for (size_t i = 0; i < 2; ++i)
      if (o[i].steps) indices[i].insert(0, 1, step);
    indices[2].insert(0, 1, step);
    return b_.contract(o[0].value, o[1].value, indices[0], indices[1], indices[2]);
  }

  Builder& b_;
  const Graph& body_;
  std::vector<std::optional<Outside>> known_;  // by value of the body
  Dim steps_;
};

// The dependencies of each value of a body.
struct Waits {
  std::vector<bool> carries, sequences, inputs;
};
Waits waits_of(const Graph& body, const Node& scan) {
  const std::vector<bool> none(body.nodes.size());
  Waits w{none, none, none};
  const std::vector<ValueId> inputs = body.inputs();
  for (int i = 0; i < std::ssize(inputs); ++i) {
    w.inputs[inputs[i]] = true;
    if (i < scan.attributes.carries + scan.attributes.sequences)
      (i < scan.attributes.carries ? w.carries : w.sequences)[inputs[i]] = true;
  }
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
    for (const ValueId o : body[v].operands)
      for (std::vector<bool>* made : {&w.carries, &w.sequences, &w.inputs})
        if ((*made)[o]) (*made)[v] = true;
  return w;
}

class Hoister {
 public:
  explicit Hoister(const Graph& g) : r_(g) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (r_.from[v].op == Op::scan_)
        scan(v);
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  void scan(ValueId v) {
    const Node& node = r_.from[v];
    const Graph& body = *node.attributes.callee;
    const Waits waits = waits_of(body, node);
    const std::vector<ValueId> operands = r_.operands(v);
    Lifter lifter(r_.build, body, node, operands);
    std::vector<std::optional<Outside>> out(body.nodes.size());
    bool any = false;
    for (ValueId x = 0; x < std::ssize(body.nodes); ++x) {
      const bool is_product = body[x].op == Op::contract_ && waits.sequences[x];
      // Masks that depend on no input are cheaper inside the steps.
      if (waits.carries[x] || !waits.inputs[x] || !is_compute(body, x) || (waits.sequences[x] && !is_product)) continue;
      out[x] = lifter.lift(x);
      any = any || out[x];
    }
    if (!any) {
      r_.keep(v);
      return;
    }
    Node now = node;
    now.operands = operands;
    now.attributes.callee = std::make_shared<const Graph>(without(body, out, &now));
    r_.to.nodes.push_back(std::move(now));
    r_.replace(v, r_.to.nodes.size() - 1);
  }

  // The body with inputs in place of the values computed outside; operands of `scan` grow with it.
  static Graph without(const Graph& body, const std::vector<std::optional<Outside>>& out, Node* scan) {
    Rewriter r(body);
    const std::vector<ValueId> inputs = body.inputs(), given = scan->operands;
    const int stepped = scan->attributes.carries + scan->attributes.sequences;
    scan->operands.assign(given.begin(), given.begin() + stepped);
    for (int i = 0; i < stepped; ++i) r.keep(inputs[i]);
    int number = 0;
    const auto add = [&](bool steps) {
      for (ValueId v = 0; v < std::ssize(body.nodes); ++v) {
        if (!out[v] || out[v]->steps != steps) continue;
        std::string name = fmt::format("before.{}", number++);
        while (body.find_input(name) >= 0) name = fmt::format("before.{}", number++);
        r.replace(v, r.build.input(std::move(name), Role::data, body[v].type));
        scan->operands.push_back(out[v]->value);
        if (steps) ++scan->attributes.sequences;
      }
    };
    add(true);
    for (size_t i = stepped; i < inputs.size(); ++i) {
      r.keep(inputs[i]);
      scan->operands.push_back(given[i]);
    }
    add(false);
    for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
      if (body[v].op != Op::input_ && !out[v]) r.keep(v);
    return r.finish();
  }

  Rewriter r_;
};

}  // namespace

void hoist_steps(Graph& g) {
  if (!has_scans(g)) return;
  in_own_bodies(g, hoist_steps);
  g = Hoister(g).run();
  trim_scans(g);
}

}  // namespace lumen::graph
