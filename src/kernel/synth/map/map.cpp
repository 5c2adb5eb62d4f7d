// Elementwise kernels: formulas over loads that broadcast, one or several results of one shape, vectors along the last
// collapsed axis. Proved by tests/kernel/synth/synth_map_test.cpp.
#include "kernel/synth/map/map.h"

#include <numeric>

#include "kernel/synth/body/nest.h"

namespace lumen::synth {

namespace {

constexpr int64_t kGrain = 8192;  // elements per task: 32 KB of f32 per operand

// The load that a group copies, if it only copies: its root, or the operand of an identity map; -1 otherwise.
graph::ValueId copied(const graph::Plan& plan, const graph::Group& group) {
  const graph::ValueId r = group.results[0];
  if (group.results.size() != 1 || plan.graph[r].op == graph::Op::update_) return -1;
  if (is_load(plan, group, r)) return r;
  const graph::Node& n = plan.graph[r];
  if (n.op != graph::Op::map_ || n.operands.size() != 1 || !is_load(plan, group, n.operands[0])) return -1;
  const bool same = n.attributes.formula.nodes[n.attributes.formula.outputs[0]].op == ScalarOp::input;
  return same && plan.graph[n.operands[0]].type == n.type ? n.operands[0] : -1;
}

// Whether every input as large as the result is a 16-bit float.
bool reads_short(const graph::Plan& plan, const graph::Group& group, int64_t elements) {
  return std::ranges::all_of(group.inputs, [&](graph::ValueId v) {
    const graph::Type& type = plan.graph[v].type;
    return graph::elements(type.shape).number() < elements || is_16bit_float(type.element);
  });
}

}  // namespace

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  const std::vector<int64_t> shape = extents_of(plan.graph[group.results.at(0)].type.shape);
  if (const graph::ValueId load = copied(plan, group); load >= 0)
    if (auto transposed = synthesize_transpose(plan, group, load, group.results[0], target))
      return *std::move(transposed);
  StepBuilder builder(plan.graph);
  builder.declare(group);
  Builder& b = builder.b;
  const bool short_results =
      std::ranges::all_of(group.results, [&](graph::ValueId r) { return is_16bit_float(plan.graph[r].type.element); });
  if (short_results) b.use_fast_math({target.power2, target.reciprocal, ""});
  Body body(builder, plan, group, shape, {});
  // Tasks of a GPU are threads, with one vector of a load's size each; adjacent threads have adjacent vectors.
  const bool threads = target.wave > 1;
  int lanes = target.f32_lanes() * (threads && short_results && reads_short(plan, group, product(shape)) ? 2 : 1);
  const int wanted = lanes;
  while (threads && lanes > body.extents().back()) lanes /= 2;
  const bool joined = !threads && body.extents().back() < lanes && body.join_last_axes(lanes);
  const int unroll = threads ? 1 : body.is_heavy() ? 2 : 4;
  std::vector<int64_t> outer = body.extents();
  const int64_t inner = outer.back();
  outer.pop_back();
  // Where the last axis is shorter than a vector, a thread takes several of the one before.
  int64_t several = 1;
  if (threads && inner == lanes && !outer.empty() && body.chunking(lanes).lanes == 0)
    while (lanes * several < wanted && outer.back() % (several * 2) == 0) several *= 2;
  if (several > 1) outer.back() /= several;
  const int64_t unit = std::lcm<int64_t>(body.chunking(lanes).chunk, int64_t{lanes} * unroll);
  const Tasks tasks = cut(outer, inner, threads ? 1 : target.grain(kGrain), unit);
  const bool one_vector = tasks.part == lanes && inner % lanes == 0 && body.chunking(lanes).lanes == 0;
  double read = 0;
  for (const graph::ValueId v : group.inputs) read += graph::byte_size(plan.graph[v].type);
  const int64_t beside = threads && inner % lanes == 0 ? tasks_beside(tasks, read, target) : 1;
  for_tasks(
      b, tasks, outer, inner, [&] { body.begin_task(); },
      [&](const std::vector<Expr>& counters, Expr from, Expr to) {
        for (int64_t i = 0; i < several; ++i) {
          for (size_t d = 0; d < counters.size(); ++d) {
            const bool last = several > 1 && d + 1 == counters.size();
            body.open(d, last ? counters[d] * several + i : counters[d]);
          }
          body.hoist(lanes);
          const auto write = [&](int) {
            for (const graph::ValueId r : group.results) body.store(r, body.value(r));
          };
          if (one_vector) {  // compilers do not see that a loop ends after it
            body.open_lanes(from, lanes, {});
            write(0);
            body.close();
          } else {
            for_lanes(b, body, lanes, unroll, from, to, inner % lanes == 0, write);
          }
          for (size_t d = 0; d < counters.size(); ++d) body.close();
        }
      },
      beside);
  Synthesis out;
  const double elements = product(shape);
  out.steps.push_back(builder.finish(
      fmt::format("map {} {} x{}{}{}{}{}", shape_text(shape), body.summary(),
                  beside > 1 ? fmt::format("{}x", beside) : "", several > 1 ? fmt::format("{}x", several) : "", lanes,
                  joined ? " over short rows" : "", short_results && body.is_heavy() ? " short" : ""),
      elements * body.operations(), body.traffic()));
  return out;
}

}  // namespace lumen::synth
