// See attend_lay.h.
#include "kernel/synth/attention/gpu/attend_lay.h"

#include <algorithm>
#include <numeric>

#include "number/facts/facts.h"

namespace lumen::synth {

namespace {
constexpr int64_t kUnit = 8;  // numbers in 16 bytes

// The value in memory below a cast from a format that is a plain float, as KV caches have.
struct InMemory {
  graph::ValueId source = -1;
  std::optional<Scalar> scalar;
};

InMemory in_memory(const graph::Graph& g, graph::ValueId v) {
  if (g[v].op == graph::Op::cast_ && g[v].type.element.format == nullptr) v = g[v].operands[0];
  const graph::Element& element = g[v].type.element;
  return {v, element.format ? plain_scalar(*element.format) : std::optional(element.scalar)};
}

}  // namespace

std::optional<LaidOperand> lay_operand(const graph::Plan& plan, const graph::Group& group, const Access& from,
                                       const std::vector<int64_t>& extents, const std::vector<int>& lines,
                                       int64_t width, Scalar to, int64_t unit) {
  const InMemory below = in_memory(plan.graph, from.source);
  if (std::find(group.inputs.begin(), group.inputs.end(), below.source) == group.inputs.end()) return {};
  if (!below.scalar || !is_float(*below.scalar) || scalar_bytes(to) * kUnit != 16) return {};
  if (from.strides.back() != 1) return {};
  LaidOperand o;
  o.from = from;
  o.from.source = below.source;
  o.at = o.from;
  o.width = width;
  o.padded = round_up(width, unit);
  o.scalar = to;
  const auto is_line = [&](int d) { return std::find(lines.begin(), lines.end(), d) != lines.end(); };
  for (int d = 0; d < std::ssize(extents); ++d)
    if (!is_line(d) && from.strides[d] != 0 && extents[d] > 1) o.axes.push_back(d);
  o.axes.insert(o.axes.end(), lines.begin(), lines.end());
  bool as_wanted = *below.scalar == to && o.padded == width && from.offset % kUnit == 0;
  for (const int d : o.axes) as_wanted = as_wanted && from.strides[d] % kUnit == 0;
  if (as_wanted) return o;
  o.elements = o.padded;
  o.at.offset = 0;
  std::fill(o.at.strides.begin(), o.at.strides.end(), 0);
  o.at.strides.back() = 1;
  for (size_t k = o.axes.size(); k-- > 0;) {
    const size_t d = o.axes[k];
    o.at.strides[d] = o.elements;
    o.elements *= extents[d];
  }
  o.scratch = 0;
  return o;
}

std::vector<LaidOperand> lay_operands(const graph::Plan& plan, const graph::Group& group, const AttentionGradient& a,
                                      Scalar to, int64_t unit) {
  std::vector<LaidOperand> out;
  if (unit == 0) return out;
  std::vector<int> rows = a.row_axes;
  std::erase_if(rows, [&](int d) { return a.extents[d] == 1; });
  for (const AttentionGradient::Operand& o : a.operands) {
    const std::vector<int> lines = o.by_key ? std::vector<int>{static_cast<int>(a.extents.size()) - 1} : rows;
    const auto laid = lay_operand(plan, group, o.access, a.extents, lines, o.width, to, unit);
    if (!laid) return {};
    out.push_back(*laid);
  }
  return out;
}

Step write_laid(const graph::Plan& plan, const LaidOperand& o, const std::vector<int64_t>& extents,
                const std::string& what) {
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  const Scalar type = *in_memory(plan.graph, o.from.source).scalar;
  const BufferId source = builder.value(o.from.source, false),
                 to = builder.scratch(o.scratch, o.elements * scalar_bytes(o.scalar), true);
  int64_t together = std::gcd(o.from.offset, kUnit);
  for (const int d : o.axes) together = std::gcd(together, o.from.strides[d]);
  const int align = std::min<int64_t>(together * scalar_bytes(type), 16);
  const int64_t units = o.padded / kUnit;
  b.loop(LoopKind::parallel, b.i64(0), b.i64(o.elements / kUnit), 1, [&](Expr task) {
    const Expr first = task % units * kUnit;
    Expr rest = task / units, at = o.from.offset + first;
    for (size_t k = o.axes.size(); k-- > 0;) {
      const size_t d = o.axes[k];
      const Expr digit = k > 0 ? rest % extents[d] : rest;
      at = at + digit * o.from.strides[d];
      rest = rest / extents[d];
    }
    const VType numbers{type, static_cast<int>(kUnit)};
    const Expr place = task * (kUnit * scalar_bytes(o.scalar));
    const auto lay = [&](Expr count) {
      const Expr x =
          b.load(source, numbers, at * scalar_bytes(type), !count.exists() ? align : scalar_bytes(type), count);
      b.store(to, cast(x, o.scalar), place, 16);
    };
    if (o.padded == o.width) return lay({});
    const Expr left = o.width - first;
    const bool whole = o.width % kUnit == 0;
    b.branch(
        0 < left, [&] { lay(whole ? Expr{} : min(left, b.i64(kUnit))); },
        [&] { b.store(to, b.real(0, {o.scalar, static_cast<int>(kUnit)}), place, 16); });
  });
  const double numbers = o.elements;
  return builder.finish(fmt::format("prepare {} {} of {} as {}", what, o.elements, o.padded, scalar_name(o.scalar)), 0,
                        numbers * (scalar_bytes(type) + scalar_bytes(o.scalar)));
}

Step write_reciprocals(const graph::Plan& plan, Access from, const std::vector<int64_t>& extents, int scratch,
                       Access* at) {
  int64_t count = 1;
  at->offset = 0;
  for (size_t d = from.strides.size(); d-- > 0;) {
    at->strides[d] = from.strides[d] == 0 ? 0 : count;
    if (from.strides[d] != 0) count *= extents[d];
  }
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  const BufferId source = builder.value(from.source, false), to = builder.scratch(scratch, count * 4, true);
  const VType one{Scalar::f32, 1};
  b.loop(LoopKind::parallel, b.i64(0), b.i64(count), 1, [&](Expr task) {
    Expr rest = task, place = b.i64(from.offset);
    for (size_t d = from.strides.size(); d-- > 0;) {
      if (from.strides[d] == 0) continue;
      place = place + rest % extents[d] * from.strides[d];
      rest = rest / extents[d];
    }
    const Expr x = b.load(source, one, place * 4, 4);
    b.store(to, 1 / x, task * 4, 4);
  });
  return builder.finish(fmt::format("prepare attend gradient {} reciprocals", count), count, 8 * count);
}

}  // namespace lumen::synth
