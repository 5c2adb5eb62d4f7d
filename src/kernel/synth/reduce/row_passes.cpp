// See row_passes.h.
#include "kernel/synth/reduce/row_passes.h"

#include <algorithm>

namespace lumen::synth {

using graph::Op;

namespace {

bool is_costly(const graph::Node& n) {
  const auto& nodes = n.attributes.formula.nodes;
  return n.op == Op::random_ ||
         std::any_of(nodes.begin(), nodes.end(), [](const auto& s) { return is_heavy_op(s.op); });
}

}  // namespace

RowPasses::RowPasses(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts, const Body& body,
                     int reduced_axis, std::vector<int> kept_axes)
    : plan_(plan),
      g_(plan.graph),
      group_(group),
      facts_(facts),
      body_(body),
      reduced_axis_(reduced_axis),
      kept_axes_(std::move(kept_axes)),
      visited_(facts.passes) {
  for (int p = 0; p < count(); ++p) {
    for (const graph::ValueId r : reduces_of(p)) visit(g_[r].operands[0], p);
    for (const graph::ValueId r : results_of(p)) visit(r, p);
  }
}

void RowPasses::visit(graph::ValueId v, int pass) {
  if (!visited_[pass].insert(v).second) return;
  if (is_load(plan_, group_, v) || g_[v].op == Op::reduce_) return;
  for (const graph::ValueId a : g_[v].operands) visit(a, pass);
}

std::vector<graph::ValueId> RowPasses::reduces_of(int pass) const {
  std::vector<graph::ValueId> out;
  for (const graph::ValueId r : facts_.reduces)
    if (facts_.level.at(r) == pass + 1) out.push_back(r);
  return out;
}

std::vector<graph::ValueId> RowPasses::results_of(int pass) const {
  std::vector<graph::ValueId> out;
  for (const graph::ValueId r : facts_.full_results) {
    const auto found = facts_.level.find(r);
    if ((found == facts_.level.end() ? 0 : found->second) == pass) out.push_back(r);
  }
  return out;
}

RowPasses::Values RowPasses::costly() const {
  Values out;
  for (const graph::ValueId v : facts_.full_maps) {
    if (!is_costly(g_[v]) || g_[v].type.element.scalar != Scalar::f32) continue;
    Span span{-1, -1};
    for (int p = 0; p < count(); ++p)
      if (visits(p, v)) span = {span.first < 0 ? p : span.first, p};
    if (span.first < span.last) out[v] = span;
  }
  return out;
}

RowPasses::Values RowPasses::held(int64_t elements, int64_t most) const {
  Values out;
  for (int p = 1; p < count(); ++p) {
    for (const graph::ValueId r : reduces_of(p)) hold(g_[r].operands[0], p, elements, most, out);
    for (const graph::ValueId r : results_of(p)) hold(r, p, elements, most, out);
  }
  return out;
}

void RowPasses::hold(graph::ValueId v, int pass, int64_t elements, int64_t most, Values& held) const {
  if (const auto found = held.find(v); found != held.end()) {
    found->second.last = pass;
    return;
  }
  if (g_[v].op == Op::reduce_ || !reads_rows(v)) return;
  const bool load = is_load(plan_, group_, v);
  const auto& maps = facts_.full_maps;
  int first = 0;
  while (first < pass && !visits(first, v)) ++first;
  if (first < pass && (load || std::find(maps.begin(), maps.end(), v) != maps.end())) {
    held[v] = {first, pass};
    if (registers(held, elements) <= most) return;
    held.erase(v);
  }
  if (load) return;
  for (const graph::ValueId a : g_[v].operands) hold(a, pass, elements, most, held);
}

int64_t RowPasses::registers(const Values& held, int64_t elements) const {
  int64_t most = 0;
  for (int pass = 1; pass < count(); ++pass) {
    int64_t all = 0;
    for (const auto& [v, span] : held)
      if (span.first < pass && pass <= span.last) all += elements * scalar_bytes(g_[v].type.element.scalar) / 4;
    most = std::max(most, all);
  }
  return most;
}

bool RowPasses::reads_rows(graph::ValueId v) const {
  if (is_load(plan_, group_, v))
    return body_.varies(v, reduced_axis_) &&
           std::any_of(kept_axes_.begin(), kept_axes_.end(), [&](int axis) { return body_.varies(v, axis); });
  const auto& operands = g_[v].operands;
  return g_[v].op != Op::reduce_ &&
         std::any_of(operands.begin(), operands.end(), [&](graph::ValueId a) { return reads_rows(a); });
}

}  // namespace lumen::synth
