// Reduce groups: facts, the choice of walk, and how big reductions are cut into parts of fixed size.
// Proved by tests/kernel/synth/synth_reduce_test.cpp.
#include "kernel/synth/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/round_up.h"
#include "kernel/synth/map/map.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;

namespace {
constexpr int64_t kPart = 32768;   // elements per part of a split reduction
constexpr int64_t kWaves = 2048;   // that keep a GPU reading
constexpr int64_t kEnough = 16;    // tasks that keep every thread busy without splitting
constexpr int64_t kTogether = 16;  // parts that a lane loads at once
constexpr int64_t kLines = 16;     // of other axes, of a part
}  // namespace

Scalar accumulator_type(Scalar s) {
  return s == Scalar::f16 || s == Scalar::bf16 ? Scalar::f32 : s;
}

Accumulators::Accumulators(Builder& b, const graph::Graph& g, std::vector<graph::ValueId> reduces, int lanes, int ways)
    : b_(b), graph_(g), reduces_(std::move(reduces)), lanes_(lanes), ways_(ways) {
  for (int k = 0; k < size(); ++k)
    for (int w = 0; w < ways_; ++w) buffers_.push_back(b.alloc(int64_t{lanes} * scalar_bytes(type(k)), 64));
}

Scalar Accumulators::type(int reduce) const {
  return accumulator_type(graph_[reduces_[reduce]].type.element.scalar);
}

ScalarOp Accumulators::op(int reduce) const {
  switch (graph_[reduces_[reduce]].attributes.reduction) {
    case graph::Reduction::sum:
      return ScalarOp::add_;
    case graph::Reduction::max:
      return ScalarOp::max_;
    case graph::Reduction::min:
      return ScalarOp::min_;
  }
  LUMEN_UNREACHABLE("reduction");
}

Expr Accumulators::identity(int reduce, int lanes) {
  const VType t{type(reduce), lanes};
  const ScalarOp o = op(reduce);
  if (is_float(t.scalar)) {
    const double inf = std::numeric_limits<double>::infinity();
    return b_.real(o == ScalarOp::add_ ? 0 : o == ScalarOp::max_ ? -inf : inf, t);
  }
  const int bits = scalar_bits(t.scalar) - (is_signed(t.scalar) ? 1 : 0);
  const int64_t top = bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  const int64_t bottom = is_signed(t.scalar) ? -top - 1 : 0;
  return b_.integer(o == ScalarOp::add_ ? 0 : o == ScalarOp::max_ ? bottom : top, t);
}

void Accumulators::reset(int reduce) {
  for (int w = 0; w < ways_; ++w) b_.store(buffers_[reduce * ways_ + w], identity(reduce, lanes_), b_.i64(0), 64);
}

void Accumulators::put(int way, Expr x) {
  b_.store(buffers_[way], x, b_.i64(0), 64);
}

void Accumulators::multiply_add(int way, Expr x, Expr y, bool fused) {
  const Expr old = get(0, way);
  b_.store(buffers_[way], fused ? fma(x, y, old) : x * y + old, b_.i64(0), 64);
}

Expr Accumulators::get(int reduce, int way) {
  return b_.load(buffers_[reduce * ways_ + way], {type(reduce), lanes_}, b_.i64(0), 64);
}

void Accumulators::add(int reduce, int way, Expr x, Expr count) {
  x = cast(x, type(reduce));
  const int lanes = b_.type(x).lanes;
  if (count.exists()) {
    std::vector<int64_t> number;
    for (int l = 0; l < lanes; ++l) number.push_back(l);
    const Expr mask = b_.lanes_integer(number, Scalar::i32) < b_.splat(cast(count, Scalar::i32), lanes);
    x = select(mask, x, identity(reduce, lanes));
  }
  if (lanes < lanes_) {
    Expr wide = identity(reduce, lanes_);
    for (int l = 0; l < lanes; ++l) wide = b_.insert(wide, b_.extract(x, l), l);
    x = wide;
  }
  b_.store(buffers_[reduce * ways_ + way], b_.op(op(reduce), x, get(reduce, way)), b_.i64(0), 64);
}

Expr Accumulators::total(int reduce) {
  std::vector<Expr> ways;
  for (int w = 0; w < ways_; ++w) ways.push_back(get(reduce, w));
  while (ways.size() > 1) {
    std::vector<Expr> next;
    for (size_t k = 0; k + 1 < ways.size(); k += 2) next.push_back(b_.op(op(reduce), ways[k], ways[k + 1]));
    if (ways.size() % 2 != 0) next.push_back(ways.back());
    ways = std::move(next);
  }
  return b_.fold(op(reduce), ways[0]);
}

void declare_reduce(StepBuilder& builder, const graph::Group& group, const ReduceFacts& facts, Split split,
                    bool writes_parts) {
  for (const graph::ValueId v : group.inputs) builder.value(v, false);
  const bool first = split.parts == 1 || writes_parts, last = split.parts == 1 || !writes_parts;
  for (const graph::ValueId v : group.results)
    if (extents_of(builder.graph()[v].type.shape) == facts.full ? first : last) builder.value(v, true);
  if (split.parts == 1) return;
  for (size_t k = 0; k < facts.reduces.size(); ++k) {
    const Scalar s = accumulator_type(builder.graph()[facts.reduces[k]].type.element.scalar);
    builder.scratch(k, split.parts * product(facts.kept) * scalar_bytes(s), writes_parts);
  }
}

void store_part(StepBuilder& builder, Body& body, const ReduceFacts& facts, int reduce, Scalar type, Expr part,
                int64_t parts, Expr x) {
  const int64_t elements = product(facts.kept);
  const Expr number = part * elements + body.store_place(facts.reduces[reduce]);
  const BufferId buffer = builder.scratch(reduce, parts * elements * scalar_bytes(type), true);
  body.store_to(buffer, type, number * scalar_bytes(type), x);
}

Step reduce_parts(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                  const machine::Machine& target, Split split) {
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  declare_reduce(builder, group, facts, split, false);
  Body body(builder, plan, group, facts.kept, {});
  const int lanes = target.f32_lanes();
  const int64_t elements = product(facts.kept);
  const std::vector<int64_t> outer = body.outer();
  const int64_t inner = body.extents().back();
  // `first`, `step`: which parts a lane adds; then the lanes of a wave are reduced.
  const auto vectors = [&](const std::vector<Expr>& counters, Expr from, Expr to, Expr first, int64_t step,
                           const std::function<void(const std::function<void()>&)>& once) {
    Accumulators sums(b, plan.graph, facts.reduces, lanes, 1);
    for (size_t d = 0; d < counters.size(); ++d) body.open(d, counters[d]);
    for_lanes(b, body, lanes, 1, from, to, inner % lanes == 0, [&](int) {
      const int width = body.lanes();
      for (int k = 0; k < sums.size(); ++k) {
        const Scalar s = sums.type(k);
        const BufferId scratch = builder.scratch(k, 0, false);
        const Expr number = body.store_place(facts.reduces[k]);
        sums.reset(k);
        const auto load = [&](Expr part) {
          const Expr at = (part * elements + number) * scalar_bytes(s);
          return b.load(scratch, {s, width}, at, scalar_bytes(s), body.count());
        };
        // Several are loaded at once, to hide memory latency.
        const int64_t together = step > 1 && split.parts % (step * kTogether) == 0 ? kTogether : 1;
        b.loop(LoopKind::serial, first, b.i64(split.parts), step * together, [&](Expr part) {
          std::vector<Expr> some;
          for (int64_t i = 0; i < together; ++i) some.push_back(load(part + i * step));
          for (const Expr x : some) sums.add(k, 0, x, body.count());
        });
        Expr x = sums.get(k, 0);
        if (step > 1) x = b.fold_wave(sums.op(k), x, target.wave);
        if (width == 1) x = b.extract(x, 0);
        body.set(facts.reduces[k], cast(x, plan.graph[facts.reduces[k]].type.element.scalar));
      }
      once([&] {
        for (const graph::ValueId r : facts.kept_results) body.store(r, body.value(r));
      });
    });
    for (size_t d = 0; d < counters.size(); ++d) body.close();
  };
  if (target.wave > 1) {
    const int64_t across = (inner + lanes - 1) / lanes;
    b.loop(LoopKind::grid, b.i64(0), b.i64(product(outer) * across), 1, [&](Expr block) {
      b.loop(LoopKind::lane, b.i64(0), b.i64(target.wave), 1, [&](Expr) {
        const Expr lane = b.lane_id();
        body.begin_task();
        const Expr from = block % across * lanes;
        const Expr to = min(from + lanes, b.i64(inner));
        vectors(digits(b, block / across, outer), from, to, lane, target.wave,
                [&](const std::function<void()>& store) { b.branch(lane == 0, store); });
      });
    });
  } else {
    const Tasks tasks =
        cut(outer, inner,
            std::max<int64_t>(target.grain(kPart) / split.parts, std::min<int64_t>(64, target.grain(kPart))), lanes);
    for_tasks(
        b, tasks, outer, inner, [&] { body.begin_task(); },
        [&](const std::vector<Expr>& counters, Expr from, Expr to) {
          vectors(counters, from, to, b.i64(0), 1, [](const std::function<void()>& store) { store(); });
        });
  }
  return builder.finish(
      fmt::format("reduce splits {} of {} {} x{}", split.parts, shape_text(facts.kept), body.summary(), lanes),
      split.parts * elements, 4.0 * (split.parts * elements));
}

Synthesis synthesize_reduce(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  const ReduceFacts facts(plan, group);
  if (facts.is_trivial) return synthesize_map(plan, group, target);
  // The walk depends on the collapsed shape, which a temporary body determines.
  StepBuilder probe_draft(plan.graph);
  probe_draft.declare(group);
  const Body probe(probe_draft, plan, group, facts.full, facts.barrier());
  const auto reduced = [&](size_t axis) {
    return probe.first_axis(axis) < 0 || facts.is_reduced[probe.first_axis(axis)];
  };
  const size_t axes = probe.extents().size();
  const bool rows = reduced(axes - 1);
  int64_t kept = 1, length = 1, cut_axis = -1;
  for (size_t d = 0; d < axes; ++d) {
    (reduced(d) ? length : kept) *= probe.extents()[d];
    if (reduced(d) && cut_axis < 0) cut_axis = d;
  }
  const int64_t lanes = target.f32_lanes();
  const int64_t beside = (target.wave > 1 ? 1 : 8) * lanes;  // columns of a task
  const int64_t busy = rows ? kept : kept / probe.extents().back() * ((probe.extents().back() + beside - 1) / beside);
  const Body::Chunking chunking = probe.chunking(lanes);
  const bool packed = chunking.lanes > 0;
  Split split;
  const bool shared =
      target.wave > 1 && rows && cut_axis == static_cast<int64_t>(axes) - 1 && kept * length <= kFewElements && !packed;
  if (!shared && !facts.is_dependent && facts.passes == 1 && busy < target.enough(kEnough) &&
      kept * length >= 2 * target.grain(kPart)) {
    const int64_t cut_extent = probe.extents()[cut_axis];
    const int64_t per_step = kept * length / cut_extent;  // elements per step of the cut axis
    const bool cuts_lanes = rows && cut_axis == static_cast<int64_t>(axes) - 1;
    // Parts begin at whole vectors and whole units that formats unpack.
    const bool in_lines = target.wave > 1 && cut_extent >= kLines * kLines;  // that are loaded together
    const int64_t unit = cuts_lanes ? std::lcm(chunking.chunk, 4 * lanes) : in_lines ? kLines : 1;
    split.part = std::max<int64_t>(round_up(target.grain(kPart) / std::max<int64_t>(per_step, 1), unit), unit);
    // No more parts than keep the machine busy, nor than a part has elements, for the parts must be added, too.
    if (target.wave > 1 && cuts_lanes && !packed) {
      const int64_t waves = std::max<int64_t>(kWaves / std::max<int64_t>(kept, 1), 1), step = lanes * target.wave;
      split.part = std::max(round_up(cut_extent / waves, step), 8 * step);
    } else if (target.busy_tasks > 0) {
      split.part = std::max(split.part, static_cast<int64_t>(std::sqrt(cut_extent)) / unit * unit);
      split.part = std::max(split.part, round_up(cut_extent * busy / target.busy_tasks, unit));
    }
    split.parts = (cut_extent + split.part - 1) / split.part;
  }
  Synthesis out;
  out.steps.push_back(rows ? reduce_rows(plan, group, facts, target, split)
                           : reduce_columns(plan, group, facts, target, split));
  if (split.parts > 1) {
    for (const graph::ValueId v : facts.reduces)
      out.scratch.push_back(split.parts * product(facts.kept) *
                            scalar_bytes(accumulator_type(plan.graph[v].type.element.scalar)));
    out.steps.push_back(reduce_parts(plan, group, facts, target, split));
  }
  return out;
}

}  // namespace lumen::synth
