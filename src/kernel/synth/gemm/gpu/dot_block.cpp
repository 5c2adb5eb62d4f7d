// The nest of a block: stages of K through panels in shared memory. With asynchronous copies several stages are in
// flight; otherwise the next one is loaded into registers while this one is multiplied. Sums of an element are added in
// the order of k, part by part.
#include "kernel/synth/gemm/gpu/dot_block.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/block_fill.h"
#include "kernel/synth/gemm/gpu/block_scales.h"
#include "kernel/synth/gemm/gpu/block_write.h"
#include "kernel/synth/gemm/gpu/codes_stage.h"
#include "kernel/synth/gemm/gpu/codes_write.h"
#include "kernel/synth/gemm/gpu/dot_block_merge.h"
#include "kernel/synth/step/software_pipeline.h"

namespace lumen::synth {
namespace {

using Side = BlockProduct::Side;

constexpr double kCachedUnpacking = 1.3;  // times moving as many bytes, if the second-level cache holds the operand

class BlockKernel {
 public:
  // `out`: gets the steps that encoding needs before and after the product.
  BlockKernel(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, int scratch,
              Synthesis& out)
      : p_(p),
        t_(t),
        m_(m),
        written_(t.splits > 1 ? without_result(p) : p),
        w_(g, written_, "dot"),
        b_(w_.b),
        pipeline_(b_, {.lanes = t.tile.lanes(), .buffers = t.buffers, .overlaps = t.overlaps()}) {
    if (!p.codes.empty()) codes_ = std::make_unique<CodesWrite>(w_, p, t, m, out);
    if (const int64_t bytes = partial_bytes(p, t)) partial_ = w_.scratch_param("partial", scratch, bytes, true);
  }

  void add_last_steps(Synthesis& out) const {
    if (codes_) codes_->add_last_steps(out);
  }

  Step write(std::string plan) {
    const int64_t blocks = t_.scheduler.persistent_blocks > 0 ? t_.scheduler.persistent_blocks : t_.blocks(p_);
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(blocks), 1, [&](Expr block) {
      prepare();
      if (t_.scheduler.persistent_blocks > 0)
        walk(block);
      else
        write_tile(block);
    });
    return w_.step(std::move(plan));
  }

 private:
  static DotProblem without_result(DotProblem p) {
    p.epilogue.clear();
    p.row_scales.clear();
    p.result = -1;
    if (!p.adds_runs()) {
      p.loads.resize(2);
      return p;
    }
    for (size_t i = 2; i < p.loads.size(); ++i)
      if (std::ranges::none_of(p.run_scales, [&](const auto& scales) { return scales && scales->load == i; }))
        p.loads[i].kind = DotLoad::Kind::splat;
    return p;
  }

  void lanes(const std::function<void(Expr)>& body) { pipeline_.lanes(body); }
  Expr select(Expr c, Expr x, Expr y) { return x.is(y) ? x : loop::select(c, x, y); }

  // Stages from .. to - 1 of a tile; `before`: stages that went through the panels earlier.
  struct Work {
    TilePlace place;
    Expr base_a, base_b;  // elements
    Expr from, to, before;
    Expr partial_tile, tile;
  };
  bool copies() const { return a_->copies() && c_->copies(); }
  void prepare();
  void write_tile(Expr block);
  void walk(Expr block);
  Work work_of(Expr block, Expr number);
  void enter(Work& work);
  void begin_work(const Work& work);
  void multiply_copied(const Work& now, const Work* next);
  // Scales are loaded into registers while products are in flight.
  void wait_products(Expr lane, Expr number) {
    const auto scales = scales_of(lane, number);
    b_.wait(loop::Flow::products, 0);
    product_->ready(scales ? &*scales : nullptr);
  }
  std::optional<BlockProduct::Scales> scales_of(Expr lane, Expr number) {
    return scales_ ? std::optional(scales_->of(lane, number)) : std::nullopt;
  }
  Expr number_of(const Work& now, Expr stage) { return (now.before + (stage - now.from)) % t_.buffers; }
  void bring_scales(Expr lane, const Work& now, Expr stage, bool first = false);
  void copy_ahead(Expr lane, const Work& now, const Work* next, Expr stage);
  void multiply_in_steps(const Work& work);
  void multiply_fetched(Expr from, Expr to);
  void multiply_unpacked(Expr from, Expr to);
  BlockFill::StagePosition place_of(size_t load, Expr stage, int64_t position);
  Expr panel(Side side, Expr number) { return number * product_->panel_bytes(side); }
  void begin_copies(Expr lane, Expr stage, Expr number) {
    if (a_->copies()) a_->copy(lane, place_of(0, stage, 0), panel_a_, panel(Side::a, number));
    if (c_->copies()) c_->copy(lane, place_of(1, stage, 0), panel_b_, panel(Side::b, number));
  }
  void multiply(Expr lane, Expr number) {
    const auto scales = scales_of(lane, number);
    product_->multiply(lane, panel_a_, panel(Side::a, number), panel_b_, panel(Side::b, number), -1,
                       scales ? &*scales : nullptr);
  }
  void write_sums(Expr lane, const Work& work);
  void write_codes(const Work& work) {
    codes_->write([&](const auto& body) { lanes(body); }, *product_, work.place.m0, work.place.n0, work.tile);
  }

  const DotProblem& p_;
  const BlockPlan& t_;
  const machine::Machine& m_;
  DotProblem written_;  // the part of it that this step does
  DotWriter w_;
  Builder& b_;
  SoftwarePipeline pipeline_;
  BufferId partial_ = -1, panel_a_ = -1, panel_b_ = -1;
  std::unique_ptr<BlockProduct> product_;
  std::unique_ptr<BlockFill> a_, c_;
  std::unique_ptr<WeightStages> stages_;  // of b, if it is copied before it is unpacked
  std::unique_ptr<BlockWrite> write_;
  std::unique_ptr<CodesWrite> codes_;    // if the product encodes
  std::unique_ptr<BlockScales> scales_;  // of runs of K, if it has any
  Expr split_;
};

void BlockKernel::prepare() {
  product_ = std::make_unique<BlockProduct>(b_, m_, t_.tile);
  a_ = std::make_unique<BlockFill>(w_, p_, *product_, m_, Side::a, t_.a);
  c_ = std::make_unique<BlockFill>(w_, p_, *product_, m_, Side::b, t_.b);
  const Builder::FastMath fast{m_.power2, m_.reciprocal, ""};
  write_ = std::make_unique<BlockWrite>(w_, p_, *product_, t_.adds_rounded(p_) ? fast : Builder::FastMath{});
  panel_a_ = b_.alloc(product_->panel_bytes(Side::a) * t_.panels_a(), BlockProduct::kAlign, loop::Space::shared);
  panel_b_ = b_.alloc(product_->panel_bytes(Side::b) * t_.buffers, BlockProduct::kAlign, loop::Space::shared);
  if (t_.weight_stages) {
    stages_ = std::make_unique<WeightStages>(w_, p_, *t_.weight_stages);
    c_->read_from(stages_.get());
  }
  if (copies()) a_->hold_rows();
  if (t_.steps_ahead) product_->hold_steps();
  if (codes_) codes_->begin();
  if (p_.adds_runs()) scales_ = std::make_unique<BlockScales>(w_, p_, *product_, t_.buffers);
}

void BlockKernel::enter(Work& work) {
  w_.enter_outer(work.place.outer);
  work.base_a = w_.base(0);
  work.base_b = w_.base(1);
  a_->enter_tile(work.place.m0, work.base_a);
  c_->enter_tile(work.place.n0, work.base_b);
  if (stages_) stages_->enter(work.place.n0);
  if (scales_) scales_->enter_tile(work.place.m0, work.place.n0);
}

// A tile, or a part of its K, in a block of its own.
void BlockKernel::write_tile(Expr number) {
  const Expr block = on_chiplets(number, t_.blocks(p_), t_.chiplets);
  const int64_t tiles = t_.m_tiles * t_.n_tiles;
  const Expr rest = block / tiles;
  split_ = rest % t_.splits;
  Work work;
  work.tile = rest / t_.splits * tiles + block % tiles;
  work.place = t_.order().place(work.tile);
  work.from = split_ * t_.split_stages;
  work.to = t_.splits == 1 ? w_.i64(t_.stages) : min(work.from + t_.split_stages, w_.i64(t_.stages));
  work.before = w_.i64(0);
  enter(work);
  w_.where_row(work.place.m0, [&] {
    if (t_.steps_ahead) {
      multiply_in_steps(work);
    } else if (copies() && !t_.tile.whole_rows) {
      begin_work(work);
      multiply_copied(work, nullptr);
    } else if (t_.unpacks_ahead()) {
      multiply_unpacked(work.from, work.to);
    } else {
      multiply_fetched(work.from, work.to);
    }
    if (codes_) return write_codes(work);
    lanes([&](Expr lane) { write_sums(lane, work); });
  });
}

BlockKernel::Work BlockKernel::work_of(Expr block, Expr number) {
  const TileScheduler::Job job = t_.scheduler.job(b_, block, number);
  return {t_.order().place(job.tile), {}, {}, job.from, job.to, job.before, job.partial_tile, job.tile};
}

// Many tiles, or partial ones, one after the other: copies for the next begin before this one's products end.
void BlockKernel::walk(Expr block) {
  LUMEN_CHECK(copies() && t_.splits == 1, "only what is copied is walked over");
  Work first = work_of(block, w_.i64(0));
  enter(first);
  begin_work(first);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.scheduler.jobs()), 1, [&](Expr number) {
    Work next = work_of(block, number + 1), now = work_of(block, number);
    enter(next);
    enter(now);
    multiply_copied(now, &next);
    b_.branch(now.from < now.to, [&] {
      if (codes_) {
        write_codes(now);
        return lanes([&](Expr) { product_->clear(); });
      }
      const auto write = [&](bool whole) {
        lanes([&](Expr lane) {
          if (whole)
            write_sums(lane, now);
          else
            write_->partial_tile(lane, partial_, now.partial_tile);
          product_->clear();
        });
      };
      if (t_.scheduler.tail() == 0) return write(true);
      b_.branch(number < t_.scheduler.waves(), [&] { write(true); }, [&] { write(false); });
    });
  });
}

BlockFill::StagePosition BlockKernel::place_of(size_t load, Expr stage, int64_t position) {
  Expr outer = w_.i64(0), rest = stage / t_.per_k;
  for (size_t d = p_.outer_k.size(); d-- > 0;) {
    const DotIndex& index = p_.outer_k[d];
    outer = outer + (d > 0 ? rest % index.extent : rest) * index.strides[load];
    rest = rest / index.extent;
  }
  const Expr k = p_.outer_k.empty() ? stage : stage % t_.per_k;
  return {outer, k * t_.tile.stage_k, position};
}

// Clears the sums and begins the first copies.
void BlockKernel::begin_work(const Work& work) {
  const auto begin = [&](Expr lane) {
    product_->clear();
    pipeline_.begin_first({.constant = [&](int64_t i) {
      const Expr stage = work.from + i;
      if (i == 0) a_->enter_rows(lane);
      b_.branch(stage < work.to, [&] { begin_copies(lane, stage, w_.i64(i)); });
      if (scales_) bring_scales(lane, work, stage, i == 0);
    }});
  };
  t_.overlaps() ? pipeline_.wait_and_barrier(pipeline_.ahead() - 1, begin) : lanes(begin);
}

// Fetches the scales of a stage, and stores those of the stage before it, which have arrived; without time for that,
// stores at once. `first`: there is no stage before.
void BlockKernel::bring_scales(Expr lane, const Work& now, Expr stage, bool first) {
  const std::vector<Expr> fetched = scales_->fetch(lane, min(stage, now.to - 1) * t_.tile.stage_k);
  if (pipeline_.ahead() == 1) return scales_->put(lane, fetched, number_of(now, stage));
  if (!first) scales_->put(lane, scales_->held(), (number_of(now, stage) + (t_.buffers - 1)) % t_.buffers);
  scales_->hold(fetched);
}

// Begins copies of the stage that is ahead() stages after `stage`: of this work, or else of the next.
void BlockKernel::copy_ahead(Expr lane, const Work& now, const Work* next, Expr stage) {
  Expr ahead = stage + pipeline_.ahead(), to = now.to, from = now.from;
  const Expr number = (now.before + (stage - now.from) + pipeline_.ahead()) % t_.buffers;
  if (next) {
    const Expr inside = ahead < now.to;
    ahead = select(inside, ahead, next->from + (ahead - now.to));
    to = select(inside, now.to, next->to);
    from = select(inside, now.from, next->from);
    a_->enter_tile(select(inside, now.place.m0, next->place.m0), select(inside, now.base_a, next->base_a));
    c_->enter_tile(select(inside, now.place.n0, next->place.n0), select(inside, now.base_b, next->base_b));
  }
  if (next && a_->holds_rows()) b_.branch(ahead == from, [&] { a_->enter_rows(lane); });
  b_.branch(ahead < to, [&] { begin_copies(lane, ahead, number); });
  if (scales_) bring_scales(lane, now, stage + pipeline_.ahead());
}

// If instructions read panels by themselves, barriers are where no lane has to wait: groups of lanes drift apart, so
// that the additions of one overlap products of another.
void BlockKernel::multiply_copied(const Work& now, const Work* next) {
  const int64_t run = t_.short_run();
  const bool adds = t_.tile.has_partial();
  b_.loop(LoopKind::serial, now.from, now.to, run, [&](Expr first) {
    for (int64_t i = 0; i < run; ++i) {
      const Expr stage = first + i;
      const Expr number = number_of(now, stage);
      const auto use = [&](Expr lane) {
        if (!t_.overlaps()) return multiply(lane, number);
        product_->begin(lane, {panel_a_, panel(Side::a, number)}, {panel_b_, panel(Side::b, number)}, adds && i == 0);
      };
      const auto finish = [&](Expr lane) {
        if (adds && i + 1 == run) wait_products(lane, number);
      };
      pipeline_.step({.begin = [&](Expr lane) { copy_ahead(lane, now, next, stage); },
                      .use = use,
                      .finish = finish,
                      .follows = !adds || i > 0});
    }
  });
  if (t_.overlaps() && !adds) lanes([&](Expr lane) { wait_products(lane, {}); });
}

// Panels of whole rows, which lanes copy together, two stages ahead. A copy goes into the panel of this stage once all
// lanes have read its last step: after the barrier. The first step of the next stage, which was copied before the
// barrier, is read then, too; both overlap products of the last step. After the last stage it is copied again, and not
// used.
void BlockKernel::multiply_in_steps(const Work& work) {
  const int64_t steps = BlockProduct::steps(m_, t_.tile);
  const Expr last = work.to - 1;
  const auto begin = [&](Expr lane, Expr stage, Expr number) {
    pipeline_.begin([&] { begin_copies(lane, min(stage, last), number); });
  };
  const auto read = [&](Expr lane, Expr number, int64_t step) {
    product_->read_step(lane, {panel_a_, panel(Side::a, number)}, {panel_b_, panel(Side::b, number)}, step);
  };
  const auto keep_order = [&] { b_.wait(loop::Flow::copies, 1); };
  pipeline_.wait_and_barrier(0, [&](Expr lane) {
    product_->clear();
    a_->enter_rows(lane);
    begin(lane, work.from, w_.i64(0));
  });
  lanes([&](Expr lane) {
    begin(lane, work.from + 1, w_.i64(1));
    b_.wait(loop::Flow::copies, 0);  // nothing else is in flight where the loop begins
    read(lane, w_.i64(0), 0);
  });
  b_.loop(LoopKind::serial, work.from, work.to, 1, [&](Expr stage) {
    const Expr here = (stage - work.from) % 2, there = 1 - here;
    pipeline_.wait_and_barrier(0, [&](Expr lane) {
      for (int64_t step = 0; step + 1 < steps; ++step) {
        read(lane, here, step + 1);
        keep_order();
        product_->multiply_step(step);
        keep_order();
      }
    });
    lanes([&](Expr lane) {
      read(lane, there, 0);
      begin(lane, stage + 2, here);
      keep_order();
      product_->multiply_step(steps - 1);
    });
  });
  lanes([&](Expr) { b_.wait(loop::Flow::copies, 0); });
}

// Operands that lanes convert or unpack: the next stage is fetched into registers before this one is multiplied, and
// stored to its panel after it.
void BlockKernel::multiply_fetched(Expr from, Expr to) {
  struct Fetched {
    BlockFill& fill;
    size_t load;
    Side side;
    BufferId panel;
    std::vector<Expr> fetched = {};
  };
  using Operands = std::array<Fetched, 2>;
  const auto fetch_scales = [&](Expr lane, Expr stage) {
    return scales_ ? scales_->fetch(lane, stage * t_.tile.stage_k) : std::vector<Expr>{};
  };
  const auto put_scales = [&](Expr lane, const std::vector<Expr>& fetched, Expr number) {
    if (scales_) scales_->put(lane, fetched, number);
  };
  // `now`: the stage that is multiplied meanwhile; absent before the first.
  const auto fetch = [&](Expr lane, Expr stage, int64_t position, Expr number, Expr now) {
    Operands operands{Fetched{*a_, 0, Side::a, panel_a_}, Fetched{*c_, 1, Side::b, panel_b_}};
    const auto hold = [&](Fetched& w) {
      if (!w.fill.copies())
        w.fetched = w.fill.fetch(lane, place_of(w.load, stage, position), w.panel, panel(w.side, number));
    };
    // Packed data is not held: it is unpacked first, while registers are free.
    const bool first = t_.b == Supply::packed;
    pipeline_.begin([&] {
      begin_copies(lane, stage, number);
      if (stages_ && now.exists()) stages_->begin_next(lane, now, from, to);
      if (first && !stages_) hold(operands[1]);
    });
    if (first && stages_) hold(operands[1]);
    hold(operands[0]);
    if (!first) hold(operands[1]);
    return operands;
  };
  const auto put = [&](Expr lane, const Operands& operands, Expr number) {
    for (const Fetched& w : operands)
      if (!w.fill.copies()) w.fill.put(lane, w.fetched, w.panel, panel(w.side, number));
  };
  if (stages_)
    pipeline_.wait_and_barrier(0, [&](Expr lane) { pipeline_.begin([&] { stages_->begin_first(lane, from, to); }); });
  pipeline_.wait_and_barrier(0, [&](Expr lane) {
    product_->clear();
    put(lane, fetch(lane, from, 0, w_.i64(0), {}), w_.i64(0));
    put_scales(lane, fetch_scales(lane, from), w_.i64(0));
  });
  const Expr last = to - 1;
  b_.loop(LoopKind::serial, from, to, t_.unrolled, [&](Expr first) {
    for (int64_t i = 0; i < t_.unrolled; ++i)
      pipeline_.wait_and_barrier(0, [&](Expr lane) {
        const Expr stage = first + i, next = min(stage + 1, last);
        const Expr here = (stage - from) % 2, there = 1 - here;
        const bool beside = t_.unpacks_beside();
        if (beside) product_->begin(lane, {panel_a_, panel(Side::a, here)}, {panel_b_, panel(Side::b, here)}, false);
        const Operands fetched = fetch(lane, next, (i + 1) % t_.unrolled * t_.tile.stage_k, there, stage);
        const std::vector<Expr> scales = fetch_scales(lane, next);
        // Fetches are in flight during the products: loads begin before them, stores to panels follow them, and neither
        // is moved among them. Short loops are left to the code generator's order.
        constexpr int64_t kLongLoop = 32;
        const auto keep_order = [&] {
          if (!m_.async_copies && t_.stages >= kLongLoop) b_.wait(loop::Flow::copies, 1);
        };
        keep_order();
        beside ? wait_products(lane, {}) : multiply(lane, here);
        keep_order();
        put(lane, fetched, there);
        put_scales(lane, scales, there);
      });
  });
}

// a is copied two stages ahead and b is unpacked one stage ahead, while products of this stage run. Products of the
// previous stage are waited for only after these have begun. The panel that is unpacked into was read by the stage
// before that one, which all lanes had waited for before the barrier.
void BlockKernel::multiply_unpacked(Expr from, Expr to) {
  constexpr int64_t kAhead = BlockPlan::kCopiedAhead;
  const Expr last = to - 1;
  // In 32 bits: a remainder takes few instructions, and no product begins before them.
  const auto number = [&](Expr stage, int64_t panels) {
    return cast(cast(stage - from, Scalar::u32) % panels, Scalar::i64);
  };
  const auto copy = [&](Expr lane, Expr stage) {
    b_.branch(stage < to,
              [&] { a_->copy(lane, place_of(0, stage, 0), panel_a_, panel(Side::a, number(stage, t_.panels_a()))); });
  };
  // After the last stage it is unpacked again, and not used.
  const auto unpack = [&](Expr lane, Expr stage, int64_t position) {
    c_->fetch(lane, place_of(1, min(stage, last), position), panel_b_, panel(Side::b, number(stage, t_.buffers)));
  };
  pipeline_.wait_and_barrier(0, [&](Expr lane) { pipeline_.begin([&] { stages_->begin_first(lane, from, to); }); });
  pipeline_.wait_and_barrier(kAhead - 1, [&](Expr lane) {
    product_->clear();
    for (int64_t i = 0; i < kAhead; ++i) pipeline_.begin([&] { copy(lane, from + i); });
    unpack(lane, from, 0);
  });
  b_.loop(LoopKind::serial, from, to, t_.unrolled, [&](Expr first) {
    for (int64_t i = 0; i < t_.unrolled; ++i)
      pipeline_.wait_and_barrier(kAhead - 1, [&](Expr lane) {
        const Expr stage = first + i;
        product_->begin(lane, {panel_a_, panel(Side::a, number(stage, t_.panels_a()))},
                        {panel_b_, panel(Side::b, number(stage, t_.buffers))}, false);
        b_.commit(loop::Flow::products);
        b_.wait(loop::Flow::products, 1);
        pipeline_.begin([&] {
          copy(lane, stage + kAhead);
          stages_->begin_next(lane, stage, from, to);
        });
        unpack(lane, stage + 1, (i + 1) % t_.unrolled * t_.tile.stage_k);
      });
  });
  lanes([&](Expr lane) { wait_products(lane, {}); });
}

void BlockKernel::write_sums(Expr lane, const Work& work) {
  if (t_.splits == 1) return write_->result(lane, work.place.m0, work.place.n0);
  const Expr row0 = (split_ * p_.outer_extent() + work.place.outer) * p_.m.extent;
  write_->part(lane, work.place.m0, work.place.n0, partial_, row0);
}

}  // namespace

std::vector<BlockDot> choose_block_dots(const DotProblem& original, const machine::Machine& m, bool exact,
                                        int scratch) {
  if (m.wave <= 1 || original.runs) return {};  // runs have no fixed number of stages
  const DotProblem p = with_plain_formats(original, m, exact);
  const Factors factors = choose_factors(p, m, exact);
  if (p.adds_runs() && factors.a.scalar == Scalar::f32) return {};
  std::vector<BlockDot> out;
  const auto add = [&](BlockDot d) {
    for (const auto& [load, made] : d.before) {
      const bool unpacks = p.loads[load].kind == DotLoad::Kind::packed;
      const bool cached = m.async_copies && made.bytes < kSecondCache;
      const double times = !unpacks ? 1 : cached ? kCachedUnpacking : m.costs.blocks.unpacking;
      d.cycles += cycles_of_moving(m, (made.bytes + made.read_bytes) * times);
    }
    const double before = d.cycles;
    if (!p.codes.empty() && !can_encode(d.problem)) return;
    for (const BlockPlan& t : choose_blocks(d.problem, m, factors)) {
      d.plan = t;
      d.cycles = before + t.cycles;
      out.push_back(d);
    }
  };
  add({p, p, {}, {}, 0});
  const std::optional<DotProblem> joint_m = p.with_joint_m(), joint_k = p.with_joint_k();
  if (joint_m && p.loads[0].kind == DotLoad::Kind::memory) add({*joint_m, *joint_m, {}, {}, 0});
  if (joint_k) add({*joint_k, *joint_k, {}, {}, 0});
  for (const auto& loads : {std::vector<size_t>{0}, std::vector<size_t>{1}, std::vector<size_t>{0, 1}}) {
    BlockDot d{p, p, {}, {}, 0};
    for (const size_t load : loads) {
      auto made = prepare_operand(d.problem, load, factors.a.scalar, scratch + d.before.size());
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
    LUMEN_CHECK(made.problem.loads[load].scratch == std::ssize(out.scratch));
    out.scratch.push_back(made.bytes);
    out.steps.push_back(write_prepare(g, plain, load, made, m));
    plain = made.problem;
  }
  write_block_kernels(g, d.problem, d.plan, m, out);
}

void write_block_kernels(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m,
                         Synthesis& out) {
  const std::string shape = describe_shape(p);
  const int scratch = out.scratch.size();
  BlockKernel kernel(g, p, t, m, scratch, out);
  Step step = kernel.write(fmt::format("{} {}", shape, describe(t, p)));
  step.flops = p.flops();
  out.steps.push_back(std::move(step));
  kernel.add_last_steps(out);
  if (partial_bytes(p, t) == 0) return;
  out.scratch.push_back(partial_bytes(p, t));
  out.steps.push_back(write_merge(g, p, t, scratch));
}

}  // namespace lumen::synth
