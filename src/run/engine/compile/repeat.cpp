// See repeat.h. A form is the group printed as a separate graph, with values renumbered and labels dropped, plus what
// the printed text omits: the formats behind the names, and which values share storage. Proved by
// tests/run/engine/repeat_test.cpp.
#include "run/engine/compile/repeat.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/hash.h"
#include "base/ordinal.h"
#include "graph/fuse/fuse.h"
#include "graph/ir/text.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "kernel/loop/text.h"
#include "run/engine/cache/in_parallel.h"
#include "run/engine/program/tensor.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::ValueId;

bool is_parameter(const Node& n) {
  return n.op == Op::input_ && n.attributes.role == graph::Role::parameter;
}

// For each group, the number of groups that run concurrently in one launch, including itself: adjacent independent
// groups with equal meaning.
std::vector<int> instances_of(const graph::Plan& plan, const std::vector<GroupForm>& forms) {
  std::vector<int> out(forms.size(), 1);
  for (size_t i = 0; i < forms.size();) {
    const size_t last = graph::last_beside(plan, i);
    size_t end = i + 1;
    while (end <= last && forms[end].meaning == forms[i].meaning) ++end;
    const bool has_kernels = !is_exchange(plan.graph, plan.groups[i]) && !is_scan(plan.graph, plan.groups[i]);
    std::fill(out.begin() + std::ptrdiff_t(i), out.begin() + std::ptrdiff_t(end), has_kernels ? int(end - i) : 1);
    i = end;
  }
  return out;
}

// An update that reads its old state may get the same storage as two arguments; the code generator must not assume that
// they are distinct.
bool shares_storage(const Graph& g, const synth::Step& step) {
  using From = synth::Argument::From;
  for (size_t i = 0; i < step.arguments.size(); ++i)
    for (size_t j = 0; j < step.arguments.size(); ++j) {
      const synth::Argument &a = step.arguments[i], &b = step.arguments[j];
      if (i == j || !step.kernel.params[i].written || a.from != b.from) continue;
      if (a.from == From::scratch ? a.index == b.index : storage_of(g, a.index) == storage_of(g, b.index)) return true;
    }
  return false;
}

}  // namespace

bool is_exchange(const Graph& g, const graph::Group& group) {
  return group.root >= 0 && g[group.root].op == Op::exchange_;
}

bool is_scan(const Graph& g, const graph::Group& group) {
  return group.root >= 0 && g[group.root].op == Op::scan_;
}

ValueFacts values_of(const Graph& g) {
  ValueFacts facts{graph::unwritten(g), {}};
  for (const Node& node : g.nodes)
    facts.alignment.push_back(is_parameter(node) ? kParameterAlignment : kValueAlignment);
  return facts;
}

GroupForm form_of(const Graph& g, const graph::Group& group, const ValueFacts& facts, graph::LayerView view) {
  GroupForm form;
  form.seen = std::move(view.nodes);
  const auto node_of = [&](ValueId v) -> const Node& {
    const auto seen = form.seen.find(v);
    return seen == form.seen.end() ? g[v] : seen->second;
  };
  Graph alone;
  std::map<ValueId, ValueId> at;
  const auto add = [&](ValueId v, Node node) {
    at[v] = form.values.size();
    form.values.push_back(v);
    node.label.clear();
    alone.nodes.push_back(std::move(node));
  };
  for (const ValueId v : group.inputs) {
    Node input{};
    input.op = Op::input_;
    input.type = node_of(v).type;
    input.attributes.name = fmt::format("v{}", form.values.size());
    input.attributes.role = g[v].attributes.role;
    add(v, std::move(input));
  }
  for (const ValueId v : group.nodes) {
    Node node = node_of(v);
    for (ValueId& operand : node.operands) operand = at.at(operand);
    add(v, std::move(node));
  }
  for (const ValueId v : group.results) {
    alone.results.push_back(at.at(v));
    alone.result_names.push_back(fmt::format("r{}", alone.results.size()));
  }
  form.meaning = is_scan(g, group) ? fmt::format("scan %{}\n", group.root) : graph::print(alone);
  form.meaning += fmt::format("shape {} root {}\n", ordinal(group.shape), group.root < 0 ? -1 : at.at(group.root));
  std::map<ValueId, size_t> storage;
  for (size_t i = 0; i < form.values.size(); ++i) {
    const Node& node = g[form.values[i]];
    const size_t shared = storage.try_emplace(storage_of(g, form.values[i]), i).first->second;
    const std::string format = node.type.element.format ? node.type.element.format->hash.hex() : "";
    form.unwritten.push_back(facts.unwritten[form.values[i]]);
    form.alignment.push_back(facts.alignment[form.values[i]]);
    const auto offset = view.offsets.find(form.values[i]);
    form.offsets.push_back(offset == view.offsets.end() ? 0 : offset->second);
    form.meaning +=
        fmt::format("{} {} {} {}{}\n", i, ordinal(node.op), shared, format, form.unwritten.back() ? " unwritten" : "");
    if (form.alignment.back() < kParameterAlignment) form.meaning += fmt::format("aligned {}\n", form.alignment.back());
  }
  return form;
}

Synthesized::Synthesized(synth::Synthesis made) : Synthesis(std::move(made)) {
  std::string all;
  for (const synth::Step& step : steps) all += texts.emplace_back(loop::print(step.kernel));
  hash = hash_text(all).hex();
}

Synthesized synthesize_form(const graph::Plan& plan, const graph::Group& group, const GroupForm& form,
                            const machine::Machine& machine, const synth::Options& options) {
  if (is_exchange(plan.graph, group) || is_scan(plan.graph, group)) return {};
  std::optional<graph::Plan> seen;  // a copy in which nodes have other types, with the same numbers
  if (!form.seen.empty()) {
    seen.emplace();
    seen->graph = plan.graph;
    for (const auto& [v, node] : form.seen) seen->graph[v] = node;
  }
  synth::Synthesis s = synth::synthesize(seen ? *seen : plan, group, machine, options);
  for (synth::Step& step : s.steps) {
    LUMEN_CHECK(step.arguments.size() == step.kernel.params.size(), "kernel {} has {} params and {} arguments",
                step.kernel.name, step.kernel.params.size(), step.arguments.size());
    step.kernel.aliased = shares_storage(plan.graph, step);
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      synth::Argument& a = step.arguments[i];
      if (a.from != synth::Argument::From::value) continue;
      loop::BufferParam& param = step.kernel.params[i];
      const auto local = std::find(form.values.begin(), form.values.end(), a.index);
      LUMEN_CHECK(local != form.values.end(), "a kernel reads %{}, which its group does not list", a.index);
      a.index = local - form.values.begin();
      param.align = std::min(param.align, form.alignment[a.index]);
      // With programmatic dependent launch, loads depend on which memory can change (loop::BufferParam).
      if (machine.follows && form.unwritten[a.index] && !param.written) param.constant = true;
    }
  }
  return Synthesized(std::move(s));
}

DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options, const ValueFacts& facts, int threads, bool at_once) {
  DistinctKernels out;
  std::vector<GroupForm> forms;
  for (const graph::Group& group : plan.groups)
    forms.push_back(form_of(plan.graph, group, facts, graph::layer_view(plan.graph, group)));
  const std::vector<int> instances = at_once ? instances_of(plan, forms) : std::vector<int>(forms.size(), 1);
  std::unordered_map<std::string, size_t> known;
  for (size_t i = 0; i < forms.size(); ++i) {
    GroupForm& form = forms[i];
    if (instances[i] > 1) form.meaning += fmt::format("instances {}\n", instances[i]);
    const auto [place, first] = known.try_emplace(form.meaning, out.forms.size());
    if (first) {
      out.first.push_back(i);
      out.forms.push_back(form);
      out.instances.push_back(instances[i]);
    }
    out.groups.push_back({place->second, std::move(form.values), std::move(form.offsets)});
  }
  out.distinct.resize(out.forms.size());
  in_parallel(out.forms.size(), threads, [&](size_t i) {
    out.distinct[i] = synthesize_form(plan, plan.groups[out.first[i]], out.forms[i], machine, options);
  });
  return out;
}

DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options) {
  return synthesize_distinct(plan, machine, options, values_of(plan.graph), 1);
}

}  // namespace lumen::run
