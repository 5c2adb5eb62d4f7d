// The nest of a block: stages of K through panels in shared memory, several under way where copies need no lane, else
// the next in registers while this one is multiplied. Sums of an element are added in the order of k, part by part.
#include "kernel/synth/dot_block.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "kernel/synth/block_fill.h"
#include "kernel/synth/choose.h"
#include "kernel/synth/dot_write.h"

namespace lumen::synth {
namespace {

using loop::BufferId;
using loop::Flow;
using loop::LoopKind;
using Value = loop::ValueId;
using Side = BlockProduct::Side;

constexpr int64_t kNeighbours = 16;  // tiles of m that follow each other, so that what they share stays in a cache
constexpr int kMergeLanes = 4;
constexpr int64_t kUnpackingLonger = 2;  // than moving as many bytes

class BlockKernel {
 public:
  BlockKernel(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, int scratch)
      : p_(p), t_(t), m_(m), written_(t.parts > 1 ? without_result(p) : p), w_(g, written_, "dot"), b_(w_.b) {
    if (t.parts > 1) partial_ = w_.scratch_param("partial", scratch, partial_bytes(p, t), true);
  }

  static int64_t partial_bytes(const DotProblem& p, const BlockPlan& t) {
    return t.parts * p.outer_extent() * p.m.extent * p.n.extent * 4;
  }

  Step write(std::string plan) {
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(t_.blocks(p_)), 1, [&](Value block) { write_block(block); });
    return w_.step(std::move(plan));
  }

 private:
  static DotProblem without_result(DotProblem p) {
    p.epilogue.clear();
    p.result = -1;
    p.loads.resize(2);
    return p;
  }

  void lanes(const std::function<void(Value)>& body) {
    b_.loop(LoopKind::lane, w_.i64(0), w_.i64(t_.tile.lanes()), 1, body);
  }
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, w_.i64(y)); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, w_.i64(y)); }

  void write_block(Value block);
  void stream_copies(Value from, Value to);
  void stream_registers(Value from, Value to);
  BlockFill::Place place_of(size_t load, Value stage, int64_t position);
  Value panel(Side side, Value number) { return w_.scaled(number, product_->panel_bytes(side)); }
  void begin_copies(Value lane, Value stage, Value number) {
    if (a_->copies()) a_->copy(lane, place_of(0, stage, 0), panel_a_, panel(Side::a, number));
    if (c_->copies()) c_->copy(lane, place_of(1, stage, 0), panel_b_, panel(Side::b, number));
  }
  void multiply(Value lane, Value number) {
    product_->multiply(lane, panel_a_, panel(Side::a, number), panel_b_, panel(Side::b, number));
  }
  void write_sums(Value lane);

  const DotProblem& p_;
  const BlockPlan& t_;
  const machine::Machine& m_;
  DotProblem written_;  // what this step does of it
  DotWriter w_;
  loop::Builder& b_;
  BufferId partial_ = -1, panel_a_ = -1, panel_b_ = -1;
  std::unique_ptr<BlockProduct> product_;
  std::unique_ptr<BlockFill> a_, c_;
  Value m0_ = -1, n0_ = -1, part_ = -1, outer_ = -1;
};

// Blocks that run at the same time should read the same rows: tiles of m in groups, then n.
void BlockKernel::write_block(Value block) {
  int64_t group = 1;
  for (int64_t g = 1; g <= kNeighbours; ++g)
    if (t_.m_tiles % g == 0) group = g;
  if (group * 4 < std::min(kNeighbours, t_.m_tiles)) group = t_.m_tiles;
  const int64_t tiles = t_.m_tiles * t_.n_tiles;
  const Value tile = rem(block, tiles), rest = div(block, tiles);
  part_ = rem(rest, t_.parts);
  outer_ = div(rest, t_.parts);
  const Value in_group = rem(tile, group * t_.n_tiles);
  m0_ = w_.scaled(w_.add(w_.scaled(div(tile, group * t_.n_tiles), group), rem(in_group, group)), t_.tile.m());
  n0_ = w_.scaled(div(in_group, group), t_.tile.n());
  w_.enter_outer(outer_);
  product_ = std::make_unique<BlockProduct>(b_, m_, t_.tile);
  a_ = std::make_unique<BlockFill>(w_, p_, *product_, m_, Side::a, t_.a);
  c_ = std::make_unique<BlockFill>(w_, p_, *product_, m_, Side::b, t_.b);
  a_->enter_tile(m0_);
  c_->enter_tile(n0_);
  panel_a_ = b_.alloc(product_->panel_bytes(Side::a) * t_.buffers, BlockProduct::kAlign, loop::Space::shared);
  panel_b_ = b_.alloc(product_->panel_bytes(Side::b) * t_.buffers, BlockProduct::kAlign, loop::Space::shared);
  const Value from = w_.scaled(part_, t_.part);
  const Value to = t_.parts == 1 ? w_.i64(t_.stages) : w_.min(w_.add(from, w_.i64(t_.part)), w_.i64(t_.stages));
  w_.where_row(m0_, [&] {
    if (a_->copies() && c_->copies())
      stream_copies(from, to);
    else
      stream_registers(from, to);
    lanes([&](Value lane) { write_sums(lane); });
  });
}

BlockFill::Place BlockKernel::place_of(size_t load, Value stage, int64_t position) {
  Value outer = w_.i64(0), rest = div(stage, t_.per_k);
  for (size_t d = p_.outer_k.size(); d-- > 0;) {
    const DotIndex& index = p_.outer_k[d];
    outer = w_.add(outer, w_.scaled(d > 0 ? rem(rest, index.extent) : rest, index.strides[load]));
    rest = div(rest, index.extent);
  }
  const Value k = p_.outer_k.empty() ? stage : rem(stage, t_.per_k);
  return {outer, w_.scaled(k, t_.tile.stage_k), position};
}

void BlockKernel::stream_copies(Value from, Value to) {
  const int64_t ahead = t_.buffers - 1;
  lanes([&](Value lane) {
    product_->clear();
    for (int64_t i = 0; i < ahead; ++i) {
      const Value stage = w_.add(from, w_.i64(i));
      b_.branch(b_.op(ScalarOp::lt_, stage, to), [&] { begin_copies(lane, stage, w_.i64(i)); });
      b_.commit(Flow::copies);
    }
  });
  b_.loop(LoopKind::serial, from, to, 1, [&](Value stage) {
    lanes([&](Value) { b_.wait(Flow::copies, static_cast<int>(ahead) - 1); });
    b_.barrier();
    lanes([&](Value lane) {
      const Value next = w_.add(stage, w_.i64(ahead)), done = b_.op(ScalarOp::sub_, stage, from);
      b_.branch(b_.op(ScalarOp::lt_, next, to),
                [&] { begin_copies(lane, next, rem(w_.add(done, w_.i64(ahead)), t_.buffers)); });
      b_.commit(Flow::copies);
      multiply(lane, rem(done, t_.buffers));
    });
  });
}

void BlockKernel::stream_registers(Value from, Value to) {
  const auto fetch = [&](Value lane, Value stage, int64_t position, Value number) {
    begin_copies(lane, stage, number);
    std::pair<std::vector<Value>, std::vector<Value>> held;
    // What is unpacked is not held, and needs registers while nothing is.
    const auto fetch_side = [&](BlockFill& fill, size_t load, Side side, BufferId buffer,
                                std::vector<Value>& held_side) {
      if (!fill.copies()) held_side = fill.fetch(lane, place_of(load, stage, position), buffer, panel(side, number));
    };
    if (t_.b == Supply::packed) fetch_side(*c_, 1, Side::b, panel_b_, held.second);
    b_.commit(Flow::copies);
    fetch_side(*a_, 0, Side::a, panel_a_, held.first);
    if (t_.b != Supply::packed) fetch_side(*c_, 1, Side::b, panel_b_, held.second);
    return held;
  };
  const auto put = [&](Value lane, const std::pair<std::vector<Value>, std::vector<Value>>& held, Value number) {
    if (!a_->copies()) a_->put(lane, held.first, panel_a_, panel(Side::a, number));
    if (!c_->copies()) c_->put(lane, held.second, panel_b_, panel(Side::b, number));
    b_.wait(Flow::copies, 0);
  };
  lanes([&](Value lane) {
    product_->clear();
    put(lane, fetch(lane, from, 0, w_.i64(0)), w_.i64(0));
  });
  b_.barrier();
  const Value last = b_.op(ScalarOp::sub_, to, w_.i64(1));
  b_.loop(LoopKind::serial, from, to, t_.unrolled, [&](Value first) {
    for (int64_t i = 0; i < t_.unrolled; ++i) {
      lanes([&](Value lane) {
        const Value stage = w_.add(first, w_.i64(i)), next = w_.min(w_.add(stage, w_.i64(1)), last);
        const Value here = rem(b_.op(ScalarOp::sub_, stage, from), 2), there = b_.op(ScalarOp::sub_, w_.i64(1), here);
        const auto held = fetch(lane, next, (i + 1) % t_.unrolled * t_.tile.stage_k, there);
        multiply(lane, here);
        put(lane, held, there);
      });
      b_.barrier();
    }
  });
}

void BlockKernel::write_sums(Value lane) {
  const int run = product_->run();
  product_->each_sum(lane, [&](Value row, Value column, Value sums) {
    const Value m = w_.add(m0_, row), n = w_.add(n0_, column);
    Value count = -1;
    if (p_.n.extent % run != 0) count = w_.min(b_.op(ScalarOp::sub_, w_.i64(p_.n.extent), n), w_.i64(run));
    const auto write = [&] {
      if (t_.parts == 1) return w_.finish_vector(sums, m, n, count);
      const Value place = w_.add(w_.scaled(w_.add(w_.scaled(part_, p_.outer_extent()), outer_), p_.m.extent), m);
      b_.store(partial_, sums, w_.scaled(w_.add(w_.scaled(place, p_.n.extent), n), 4), 4, count);
    };
    const bool whole_m = p_.m.extent % t_.tile.m() == 0, whole_n = p_.n.extent % t_.tile.n() == 0;
    if (whole_m && whole_n) return write();
    const Value inside_m = b_.op(ScalarOp::lt_, m, w_.i64(p_.m.extent)),
                inside_n = b_.op(ScalarOp::lt_, n, w_.i64(p_.n.extent));
    b_.branch(whole_m ? inside_n : whole_n ? inside_m : b_.op(ScalarOp::and_, inside_m, inside_n), write);
  });
}

// Adds the parts, in order, and applies the epilogue.
Step merge(const graph::Graph& g, DotProblem p, const BlockPlan& t, int scratch, std::string plan) {
  for (size_t load = 0; load < 2; ++load) p.loads[load].kind = DotLoad::Kind::splat;
  DotWriter w(g, p, "merge");
  loop::Builder& b = w.b;
  const BufferId partial = w.scratch_param("partial", scratch, BlockKernel::partial_bytes(p, t), false);
  const int lanes = static_cast<int>(std::min<int64_t>(kMergeLanes, p.n.extent));
  const int64_t across = (p.n.extent + lanes - 1) / lanes, rows = p.outer_extent() * p.m.extent;
  b.loop(LoopKind::parallel, w.i64(0), w.i64(rows * across), 1, [&](Value task) {
    const Value row = b.op(ScalarOp::div_, task, w.i64(across)),
                n = w.scaled(b.op(ScalarOp::rem_, task, w.i64(across)), lanes);
    const Value count = p.n.extent % lanes == 0 ? -1 : w.min(b.op(ScalarOp::sub_, w.i64(p.n.extent), n), w.i64(lanes));
    Value sum = -1;
    for (int64_t part = 0; part < t.parts; ++part) {
      const Value at = w.add(w.scaled(w.add(row, w.i64(part * rows)), p.n.extent), n);
      const Value x = b.load(partial, {Scalar::f32, lanes}, w.scaled(at, 4), 4, count);
      sum = sum < 0 ? x : b.add(sum, x);
    }
    w.enter_outer(b.op(ScalarOp::div_, row, w.i64(p.m.extent)));
    w.finish_vector(sum, b.op(ScalarOp::rem_, row, w.i64(p.m.extent)), n, count);
  });
  return w.step(std::move(plan));
}

}  // namespace

std::vector<BlockDot> choose_block_dots(const DotProblem& original, const machine::Machine& m, bool exact,
                                        int scratch) {
  if (m.wave <= 1 || original.runs) return {};  // runs have no fixed number of stages
  const DotProblem p = with_plain_formats(original, m, exact);
  const machine::Factor factor = choose_factor(p, m, exact);
  std::vector<BlockDot> out;
  const auto add = [&](BlockDot d) {
    for (const auto& [load, made] : d.before) {
      const bool unpacks = p.loads[load].kind == DotLoad::Kind::packed;
      d.cycles += cycles_of_moving((made.bytes + made.read_bytes) * (unpacks ? kUnpackingLonger : 1));
    }
    const double before = d.cycles;
    for (const BlockPlan& t : choose_blocks(d.problem, m, factor)) {
      d.plan = t;
      d.cycles = before + t.cycles;
      out.push_back(d);
    }
  };
  add({p, p, {}, {}, 0});
  for (const auto& loads : {std::vector<size_t>{0}, std::vector<size_t>{1}, std::vector<size_t>{0, 1}}) {
    BlockDot d{p, p, {}, {}, 0};
    for (const size_t load : loads) {
      auto made = prepare_operand(d.problem, load, factor.scalar, scratch + static_cast<int>(d.before.size()));
      if (!made) break;
      d.problem = made->problem;
      d.before.emplace_back(load, std::move(*made));
    }
    if (d.before.size() == loads.size()) add(std::move(d));
  }
  std::stable_sort(out.begin(), out.end(), [](const BlockDot& x, const BlockDot& y) { return x.cycles < y.cycles; });
  return out;
}

void write_block_dot(const graph::Graph& g, const BlockDot& d, const machine::Machine& m, Synthesis& out) {
  DotProblem plain = d.plain;
  for (const auto& [load, made] : d.before) {
    LUMEN_CHECK(made.problem.loads[load].scratch == static_cast<int>(out.scratch.size()));
    out.scratch.push_back(made.bytes);
    out.steps.push_back(write_prepare(g, plain, load, made, m));
    plain = made.problem;
  }
  write_block_kernels(g, d.problem, d.plan, m, out);
}

void write_block_kernels(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m,
                         Synthesis& out) {
  const std::string shape = describe_shape(p);
  const auto scratch = static_cast<int>(out.scratch.size());
  Step step = BlockKernel(g, p, t, m, scratch).write(fmt::format("{} {}", shape, describe(t, p)));
  step.flops = p.flops();
  step.cycles = t.cycles;
  out.steps.push_back(std::move(step));
  if (t.parts == 1) return;
  out.scratch.push_back(BlockKernel::partial_bytes(p, t));
  out.steps.push_back(merge(g, p, t, scratch, fmt::format("{} merge {}", shape, t.parts)));
}

}  // namespace lumen::synth
