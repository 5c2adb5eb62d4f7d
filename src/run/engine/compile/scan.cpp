#include "run/engine/compile/scan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "run/device/require.h"
#include "run/engine/compile/compile.h"

namespace lumen::run {

using graph::Attributes;
using graph::Graph;
using graph::Op;
using graph::ValueId;

namespace {

constexpr int64_t kWords = 16;  // bytes of a vector load on GPUs

// Values that the group writes, by result of the body.
std::vector<ValueId> written_results(const Graph& g, const graph::Group& group) {
  std::vector<ValueId> out(g[group.root].attributes.callee->results.size(), -1);
  for (const ValueId v : group.results) {
    ValueId& known = out[g[v].op == Op::result_ ? g[v].attributes.index : 0];
    LUMEN_CHECK(known < 0, "%{} and %{} are one result of a scan", known, v);
    known = v;
  }
  return out;
}

std::vector<graph::History> histories_in(const Graph& g, const graph::Group& group,
                                         const std::vector<ValueId>& results) {
  std::vector<graph::History> out = graph::histories_of(g, group.root, kValueAlignment);
  std::erase_if(out, [&](const graph::History& h) {
    const auto read = [&](int k) { return results[k] >= 0; };
    return std::none_of(h.before.begin(), h.before.end(), read) && std::none_of(h.after.begin(), h.after.end(), read);
  });
  return out;
}

bool has(const std::vector<int>& list, int k) {
  return std::find(list.begin(), list.end(), k) != list.end();
}

// By result: it is part of a history, or has no reader.
std::vector<bool> not_stored(const Graph& g, const graph::Group& group) {
  const std::vector<ValueId> results = written_results(g, group);
  std::vector<bool> out(results.size());
  for (int k = g[group.root].attributes.carries; k < std::ssize(results); ++k) out[k] = results[k] < 0;
  for (const graph::History& h : histories_in(g, group, results))
    for (int k = 0; k < std::ssize(results); ++k)
      if (has(h.before, k) || has(h.after, k)) out[k] = true;
  return out;
}

// Plans the initial carries, before the first step.
graph::Pipeline plan_first(const Graph& g, ValueId scan) {
  Graph first;
  graph::Builder b(first);
  first.name = "first";
  const graph::Node& node = g[scan];
  for (int c = 0; c < node.attributes.carries; ++c) {
    const ValueId operand = node.operands[c];
    const graph::Type type = g[operand].type;
    const ValueId from = graph::is_splat(g[operand]) ? b.constant(type, g[operand].attributes.data)
                                                     : b.input(fmt::format("c{}", c), graph::Role::data, type);
    Formula same;
    same.inputs = {type.element.scalar};
    same.outputs = {same.input(0)};
    first.results.push_back(b.map(std::move(same), {from}));
    first.result_names.push_back(fmt::format("c{}", c));
  }
  return graph::plan_graph(first);
}

int alignment_of(int64_t bytes) {
  return int(std::min<int64_t>(kValueAlignment, bytes & -bytes));
}

// The value in memory that contains a scan's operand, and the operand's offset in bytes.
std::pair<ValueId, int64_t> source_of(const Graph& g, ValueId operand) {
  if (g[operand].type.element.format) return {operand, 0};
  const auto access = graph::affine_access(g, operand);
  LUMEN_CHECK(access, "%{} of a scan does not lie in memory", operand);
  return {access->source, access->offset * int64_t{scalar_bytes(g[operand].type.element.scalar)}};
}

struct Memory {
  int64_t end = 0;
  int64_t take(int64_t bytes) {
    const int64_t at = end;
    end = saturating_sum(end, aligned(bytes));
    return at;
  }
};

BufferAddress moved(BufferAddress at, int64_t bytes) {
  (at.in == BufferAddress::In::arena ? at.at : at.offset) += bytes;
  return at;
}

bool in_history(const ScanPlan& s, int k) {
  return std::any_of(s.histories.begin(), s.histories.end(),
                     [&](const graph::History& h) { return has(h.before, k) || has(h.after, k); });
}

bool has_history(const ScanPlan& s, int carry) {
  return std::any_of(s.histories.begin(), s.histories.end(), [&](const graph::History& h) { return h.carry == carry; });
}

// For kernels with vector loads, steps of a size that breaks the alignment are copied to aligned memory.
Graph with_whole_words(const Graph& body, int carries, int sequences) {
  graph::Rewriter r(body);
  const std::vector<ValueId> inputs = body.inputs();
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v) {
    r.keep(v);
    const int i = std::find(inputs.begin(), inputs.end(), v) - inputs.begin();
    if (i < carries || i >= carries + sequences || graph::byte_size(body[v].type) % kWords == 0) continue;
    Formula same;
    same.inputs = {body[v].type.element.scalar};
    same.outputs = {same.input(0)};
    r.replace(v, r.build.map(std::move(same), {r[v]}));
  }
  return r.finish();
}

}  // namespace

graph::Pipeline plan_body(const graph::Plan& plan, const graph::Group& scan, const machine::Machine& machine) {
  const Attributes& a = plan.graph[scan.root].attributes;
  Graph body = *a.callee;
  if (machine.kind == machine::Kind::gpu) body = with_whole_words(body, a.carries, a.sequences);
  return graph::plan_graph(graph::with_own_results(body, not_stored(plan.graph, scan)));
}

ScanPlan plan_scan(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine) {
  const Graph& g = plan.graph;
  const graph::Node& node = g[group.root];
  ScanPlan s;
  s.plan = &plan;
  s.scan = group.root;
  s.results = written_results(g, group);
  s.histories = histories_in(g, group, s.results);
  s.steps = g[node.operands[node.attributes.carries]].type.shape[0].number();
  s.reverse = node.attributes.reverse;
  if (node.attributes.carries > 0) s.first_pipeline = plan_first(g, group.root);
  s.body_pipeline = plan_body(plan, group, machine);
  const Graph& body = s.body_pipeline.plan.graph;
  Memory memory;
  for (int c = 0; c < node.attributes.carries; ++c) {
    const int places = has_history(s, c) ? 0 : s.results[c] >= 0 ? 1 : 2;
    s.carry_at.push_back(memory.take(places * aligned(graph::byte_size(body[body.results[c]].type))));
  }
  s.values_at = memory.end;
  s.first_scratch_at = saturating_sum(memory.end, aligned(s.first_pipeline.memory.arena_bytes));
  s.body_scratch_at = saturating_sum(memory.end, aligned(s.body_pipeline.memory.arena_bytes));
  return s;
}

ValueFacts facts_of_first(const ScanPlan& scan, const ValueFacts& around) {
  const Graph& first = scan.first_pipeline.plan.graph;
  ValueFacts facts = values_of(first);
  for (const ValueId v : first.inputs()) {
    const graph::Node& node = scan.plan->graph[scan.scan];
    const int c = std::stoi(first[v].attributes.name.substr(1));
    facts.alignment[v] = around.alignment[source_of(scan.plan->graph, node.operands[c]).first];
  }
  return facts;
}

ValueFacts facts_of_body(const ScanPlan& scan, const ValueFacts& around) {
  const graph::Node& node = scan.plan->graph[scan.scan];
  const Graph& body = scan.body_pipeline.plan.graph;
  ValueFacts facts = values_of(body);
  const std::vector<ValueId> inputs = body.inputs();
  const int carries = node.attributes.carries, stepped = carries + node.attributes.sequences;
  for (int i = 0; i < std::ssize(inputs); ++i) {
    const auto [source, offset] = source_of(scan.plan->graph, node.operands[i]);
    facts.unwritten[inputs[i]] = i >= stepped && around.unwritten[source];
    facts.alignment[inputs[i]] = i < carries ? kValueAlignment : around.alignment[source];
    if (i >= carries && i < stepped)
      facts.alignment[inputs[i]] =
          std::min(facts.alignment[inputs[i]], alignment_of(graph::byte_size(body[inputs[i]].type)));
  }
  for (int k = carries; k < std::ssize(body.results); ++k)
    facts.alignment[body.results[k]] =
        std::min(facts.alignment[body.results[k]], alignment_of(graph::byte_size(body[body.results[k]].type)));
  return facts;
}

BodyAddresses::BodyAddresses(const ScanPlan& s, const PlanAddresses& around,
                             const std::function<BufferAddress(const graph::Node&)>& constant)
    : s_(s), g_(s.plan->graph), node_(g_[s.scan]), around_(around) {
  carries_ = node_.attributes.carries;
  stepped_ = carries_ + node_.attributes.sequences;
  const graph::Pipeline& p = s.body_pipeline;
  const Graph& body = p.plan.graph;
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
    if (body[v].op == Op::constant_ && p.memory.slots[v].where == graph::Slot::Where::external)
      constants_[v] = constant(body[v]);
  body_inputs_ = body.inputs();
  for (int c = 0; c < carries_; ++c) place_carry(c, graph::byte_size(body[body_inputs_[c]].type));
  for (int k = carries_; k < std::ssize(s.results); ++k) {
    if (s.results[k] < 0 || in_history(s, k)) continue;
    written_[body.results[k]] = turned(around.of(s.results[k]), graph::byte_size(body[body.results[k]].type), false);
  }
  for (int c = 0; c < carries_; ++c) written_[body.results[c]] = carry_written_[c];
}

BufferAddress BodyAddresses::of_first(ValueId v) const {
  const graph::Pipeline& p = s_.first_pipeline;
  const auto result = std::find(p.plan.graph.results.begin(), p.plan.graph.results.end(), v);
  if (result != p.plan.graph.results.end()) return carry_first_[result - p.plan.graph.results.begin()];
  const graph::Node& node = p.plan.graph[v];
  if (node.op == Op::input_) return of_operand(std::stoi(node.attributes.name.substr(1)));
  LUMEN_CHECK(p.memory.slots[v].where == graph::Slot::Where::arena, "%{} of the first carries is not in memory", v);
  return own(s_.values_at + p.memory.slots[v].offset);
}

BufferAddress BodyAddresses::of_body(ValueId v) const {
  const graph::Pipeline& p = s_.body_pipeline;
  if (const auto written = written_.find(v); written != written_.end()) return written->second;
  const graph::Node& node = p.plan.graph[v];
  if (node.op == Op::input_) {
    const int i = std::find(body_inputs_.begin(), body_inputs_.end(), v) - body_inputs_.begin();
    if (i < carries_) return carry_read_[i];
    const BufferAddress at = of_operand(i);
    return i < stepped_ ? turned(at, graph::byte_size(node.type), false) : at;
  }
  if (const auto constant = constants_.find(v); constant != constants_.end()) return constant->second;
  LUMEN_CHECK(p.memory.slots[v].where == graph::Slot::Where::arena, "%{} of a step is not in memory", v);
  return own(s_.values_at + p.memory.slots[v].offset);
}

BufferAddress BodyAddresses::turned(BufferAddress at, int64_t bytes, bool alternates) const {
  at.turns.resize(around_.loops + 1);
  at.turns[around_.loops] = {bytes, alternates};
  return at;
}

BufferAddress BodyAddresses::of_operand(int i) const {
  const auto [source, offset] = source_of(g_, node_.operands[i]);
  return moved(around_.of(source), offset);
}

// Puts a carry inside the history of all steps, or in two alternating buffers.
void BodyAddresses::place_carry(int c, int64_t bytes) {
  for (const graph::History& h : s_.histories) {
    if (h.carry != c) continue;
    const BufferAddress all = beginning_of(h);
    carry_read_.push_back(turned(moved(all, h.read_at()), bytes, false));
    carry_written_.push_back(turned(moved(all, h.written_at()), bytes, false));
    carry_first_.push_back(moved(all, h.first_at()));
    return;
  }
  const int64_t last_step = s_.reverse ? 0 : s_.steps - 1, first_step = s_.reverse ? s_.steps - 1 : 0;
  const BufferAddress last = s_.results[c] >= 0 ? around_.of(s_.results[c]) : own(s_.carry_at[c] + aligned(bytes));
  const BufferAddress other = own(s_.carry_at[c]);
  // Even steps read `even` and write `odd`, odd steps the reverse; the last step writes to the result's place.
  const bool last_is_even = last_step % 2 == 0;
  const BufferAddress even = last_is_even ? other : last, odd = last_is_even ? last : other;
  LUMEN_CHECK(even.in == BufferAddress::In::arena && odd.in == BufferAddress::In::arena && even.turns == odd.turns,
              "a carry of a scan lies outside of the arena");
  carry_read_.push_back(turned(even, odd.at - even.at, true));
  carry_written_.push_back(turned(odd, even.at - odd.at, true));
  carry_first_.push_back(first_step % 2 == 0 ? even : odd);
}

BufferAddress BodyAddresses::beginning_of(const graph::History& h) const {
  for (const int k : h.before)
    if (s_.results[k] >= 0) return moved(around_.of(s_.results[k]), -h.read_at());
  for (const int k : h.after)
    if (s_.results[k] >= 0) return moved(around_.of(s_.results[k]), -h.written_at());
  LUMEN_UNREACHABLE("a history without a reader");
}

}  // namespace lumen::run
