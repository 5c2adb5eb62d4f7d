#include "graph/keep/passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/verify.h"
#include "graph/keep/forward_part.h"
#include "graph/keep/kept_format.h"
#include "graph/keep/recompute.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// The wanted nodes and their transitive operands as a graph; `wanted` is extended to all of them.
Graph only(const Graph& g, std::vector<bool>& wanted, bool has_results) {
  if (has_results)
    for (const ValueId v : g.results) wanted[v] = true;
  for (ValueId v = g.nodes.size(); v-- > 0;)
    if (wanted[v])
      for (const ValueId o : g[v].operands) wanted[o] = true;
  Graph out;
  std::vector<ValueId> map(g.nodes.size(), -1);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (!wanted[v]) continue;
    Node node = g[v];
    for (ValueId& o : node.operands) o = map[o];
    out.nodes.push_back(std::move(node));
    map[v] = out.nodes.size() - 1;
  }
  if (!has_results) return out;
  for (const ValueId v : g.results) out.results.push_back(map[v]);
  out.result_names = g.result_names;
  return out;
}

class Splitter {
 public:
  explicit Splitter(const Graph& g) : g_(g), part_(forward_part(g, -1)), behind_(g.nodes.size()) {
    const ValueId size = g.nodes.size();
    of_batch_.resize(size);
    of_state_.resize(size);
    for (ValueId v = 0; v < size; ++v) {
      behind_[v] = part_.is_behind(v);
      const Node& node = g[v];
      if (node.op == Op::input_) {
        of_state_[v] = node.attributes.role == Role::state;
        of_batch_[v] = node.attributes.role == Role::data && !node.attributes.name.starts_with(kProductSeed);
      }
      for (const ValueId o : node.operands) {
        if (of_batch_[o]) of_batch_[v] = true;
        if (of_state_[o]) of_state_[v] = true;
      }
    }
  }

  Passes run() {
    Passes out;
    out.forward = g_;
    std::vector<bool> wanted(g_.nodes.size());
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) wanted[v] = g_[v].op == Op::update_ && !behind_[v];
    Builder forward(out.forward);
    Graph& back = out.backward;
    std::vector<ValueId> map(g_.nodes.size(), -1);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v)
      if (behind_[v]) map[v] = copied(v, back, map);
    for (const ValueId v : g_.results) back.results.push_back(copied(v, back, map));
    back.result_names = g_.result_names;
    for (size_t i = 0; i < saved_.size(); ++i) {
      const std::string name = name_of(i);
      out.kept.push_back({name, g_[saved_[i]].type});
      forward.update(forward.input(name, Role::state, g_[saved_[i]].type), saved_[i]);
      wanted.resize(out.forward.nodes.size());
      wanted.back() = true;
    }
    for (const Node& node : back.nodes)
      if (is_carried_in(node)) out.kept.push_back({node.attributes.name, node.type});
    out.forward = only(out.forward, wanted, false);
    return out;
  }

 private:
  static std::string name_of(size_t i) { return fmt::format("saved.{}", i); }

  // Values that are kept: those of the batch that depend on parameters or on earlier parts, and numbers computed from
  // states, because the forward pass overwrites the states.
  bool is_kept(ValueId v) const {
    if (part_.base[v] != v || g_[v].op == Op::input_ || behind_[v] || is_longer(v)) return false;
    if (of_batch_[v]) return part_.of_parameter[v];
    return of_state_[v] && !part_.of_parameter[v];
  }

  // A conversion from a type of fewer bytes.
  bool is_longer(ValueId v) const {
    const Node& node = g_[v];
    if (node.op != Op::map_ || node.operands.size() != 1) return false;
    const Formula& f = node.attributes.formula;
    return f.nodes.size() == 2 && f.nodes[f.outputs[0]].op == ScalarOp::cast_ &&
           byte_size(g_[node.operands[0]].type) < byte_size(node.type);
  }

  ValueId copied(ValueId v, Graph& to, std::vector<ValueId>& map) {
    if (map[v] >= 0) return map[v];
    Builder build(to);
    if (is_kept(v)) {
      saved_.push_back(v);
      return map[v] = build.input(name_of(saved_.size() - 1), Role::data, g_[v].type);
    }
    Node node = g_[v];
    for (ValueId& o : node.operands) o = copied(o, to, map);
    to.nodes.push_back(std::move(node));
    return map[v] = to.nodes.size() - 1;
  }

  const Graph& g_;
  ForwardPart part_;
  std::vector<bool> behind_, of_batch_, of_state_;
  std::vector<ValueId> saved_;
};

bool is_history(const Graph& g, ValueId update) {
  return g[g[update].operands[0]].attributes.name.starts_with(kHistoryState);
}

// Histories are updated in the backward graph, which reads their old values again.
Passes split_computing_again(const Graph& g) {
  const ForwardPart part = forward_part(g, -1);
  std::vector<bool> first(g.nodes.size()), then(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (g[v].op != Op::update_) continue;
    const bool is_forward = !part.is_behind(v) && !is_history(g, v);
    (is_forward ? first : then)[v] = true;
  }
  Passes out{only(g, first, false), only(g, then, true), {}};
  for (const Node& node : out.backward.nodes)
    if (is_carried_in(node)) out.kept.push_back({node.attributes.name, node.type});
  return out;
}

}  // namespace

Passes split_passes(const Graph& part, const Recompute& recompute) {
  using What = Recompute::What;
  LUMEN_CHECK(recompute.what != What::fit, "a part of a step is asked to fit");
  Passes out;
  if (recompute.what == What::layers) {
    out = split_computing_again(part);
  } else {
    const Graph g = recompute.what == What::maps ? recompute_maps(part, -1) : part;
    out = Splitter(keep_in_format(g, -1, recompute.kept)).run();
  }
  out.forward.name = "forward";
  out.backward.name = "backward";
  verify_or_die(out.forward, "split_passes, forward");
  verify_or_die(out.backward, "split_passes, backward");
  return out;
}

}  // namespace lumen::graph
