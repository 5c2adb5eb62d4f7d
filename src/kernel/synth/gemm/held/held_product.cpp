// The nest of a block: stages of the weight, as they lie in memory, and of activations are copied ahead; each lane
// unpacks its numbers of a stage of the weight into registers while the instructions of the previous stage read theirs.
#include "kernel/synth/gemm/held/held_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/block_fill.h"
#include "kernel/synth/gemm/gpu/block_write.h"
#include "kernel/synth/gemm/gpu/dot_block_merge.h"
#include "kernel/synth/gemm/held/held_rows.h"
#include "kernel/synth/step/software_pipeline.h"

namespace lumen::synth {
namespace {

using Side = BlockTile::Side;

constexpr int64_t kMadeAtOnce = 8;  // elements that a lane unpacks at once

class HeldKernel {
 public:
  // `rows`: scratch with reordered activations; `partial`: scratch for sums of parts of K, if there are parts.
  HeldKernel(const graph::Graph& g, const DotProblem& p, const HeldPlan& t, const machine::Machine& m, int rows,
             int partial)
      : p_(p),
        t_(t),
        m_(m),
        transposed_(transposed(p, rows)),
        w_(g, transposed_, "dot"),
        b_(w_.b),
        pipeline_(b_, {.lanes = t.lanes(), .buffers = t.panels()}),
        held_(FragmentDigits::of(t.tile.row->collective->operands[1].fragment)) {
    if (t.splits > 1) partial_ = w_.scratch_param("partial", partial, partial_bytes(p, merged(t)), true);
  }

  // The parts, for the step that adds them.
  static BlockPlan merged(const HeldPlan& t) {
    BlockPlan out;
    out.splits = t.splits;
    return out;
  }

  Step write(std::string plan) {
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(t_.blocks(p_)), 1, [&](Expr block) { write_block(block); });
    return w_.step(std::move(plan));
  }

 private:
  // Rows of the weight are the first index, and a is read from scratch.
  static DotProblem transposed(DotProblem p, int rows) {
    DotLoad& a = p.loads[0];
    a.scalar = Scalar::bf16;
    a.scratch = rows;
    a.offset = 0;
    a.elements = p.m.extent * p.k.extent;
    p.m.strides[0] = p.k.extent;
    p.swap_operands();
    return p;
  }
  using OfLane = SoftwarePipeline::OfLane;
  // Lanes of a slice are numbered like those of a tile.
  OfLane in_slice(const OfLane& body);
  void lanes(const OfLane& body) { pipeline_.lanes(in_slice(body)); }
  void wait_and_barrier(int64_t later, const OfLane& body) { pipeline_.wait_and_barrier(later, in_slice(body)); }
  void in_first_slice(const std::function<void()>& body) {
    t_.slices > 1 ? b_.branch(slice_ == b_.i64(0), body) : body();
  }
  Expr panel(Expr stage) {
    const Expr number = cast((stage - from_), Scalar::u32) % t_.panels();
    const Expr place = cast(number, Scalar::i64) * product_->panel_bytes(Side::b);
    return t_.slices > 1 ? place + slice_ * (t_.panels() * product_->panel_bytes(Side::b)) : place;
  }

  void prepare();
  void write_block(Expr block);
  using Use = std::function<void(BlockProduct::RegisterOperand)>;
  void numbers_of(Expr lane, Expr stage, int64_t of_unit, const Use& use);
  Expr scaled(Expr numbers, const std::vector<int>& places, Expr scale, Expr offset);
  void multiply_stage(Expr lane, Expr stage, int64_t number);
  void write_part(Expr lane);
  void add_slices();

  const DotProblem& p_;
  const HeldPlan& t_;
  const machine::Machine& m_;
  const DotProblem transposed_;
  DotWriter w_;
  Builder& b_;
  SoftwarePipeline pipeline_;
  FragmentDigits held_;
  BufferId partial_ = -1, panel_ = -1;
  std::unique_ptr<BlockProduct> product_;
  std::unique_ptr<BlockFill> fill_;
  std::unique_ptr<WeightStages> weights_;
  std::unique_ptr<PairTable> table_;
  std::unique_ptr<StreamFactor> factor_;
  std::array<std::vector<BufferId>, 2> held_numbers_;  // of alternating stages: an operand for each step
  Expr m0_, n0_, split_;
  Expr block_from_, rounds_;  // of the block: its first stage; rounds of each slice
  Expr slice_, from_, to_;    // a lane's, and its stages
};

HeldKernel::OfLane HeldKernel::in_slice(const OfLane& body) {
  return [this, body](Expr lane) {
    slice_ = {};
    from_ = block_from_;
    if (t_.slices > 1) {
      slice_ = lane / int64_t{t_.tile.lanes()};
      lane = lane % int64_t{t_.tile.lanes()};
      from_ = block_from_ + slice_ * (rounds_ * t_.unrolled());
      weights_->enter_slice(slice_);
    }
    to_ = from_ + rounds_ * t_.unrolled();
    body(lane);
  };
}

void HeldKernel::prepare() {
  product_ = std::make_unique<BlockProduct>(b_, m_, t_.tile);
  fill_ = std::make_unique<BlockFill>(w_, transposed_, *product_, m_, Side::b, Supply::copies);
  panel_ =
      b_.alloc(product_->panel_bytes(Side::b) * t_.panels() * t_.slices, BlockProduct::kAlign, loop::Space::shared);
  weights_ = std::make_unique<WeightStages>(w_, transposed_, t_.weights);
  const FactorForm& form = t_.unit.factor;
  const Format& f = *p_.loads[1].format;
  if (form.table.size() > 0) table_ = std::make_unique<PairTable>(b_, m_, form.table);
  const WeightCopies::Shape& c = t_.weights.copies;
  const bool aligned =
      (c.stage_bytes | c.pitch | t_.unit.unit_bytes | t_.unit.order.lane_bytes | c.step()) % int64_t{4} == 0;
  factor_ = std::make_unique<StreamFactor>(b_, m_, &f, form, table_.get(), aligned, t_.tile.lanes());
  for (auto& of_stage : held_numbers_)
    for (int64_t i = 0; i < t_.steps(); ++i) of_stage.push_back(b_.alloc(16, 16));
}

// f32 numbers of elements that count 2^place: times a scale, plus offset and zero point.
Expr HeldKernel::scaled(Expr numbers, const std::vector<int>& places, Expr scale, Expr offset) {
  const FactorForm& form = t_.unit.factor;
  const int count = places.size();
  const VType one{Scalar::f32, 1};
  std::map<int, std::pair<Expr, Expr>> by_place;
  for (const int place : places) {
    if (by_place.contains(place)) continue;
    const double part = std::ldexp(1.0, -place), zero = form.zero_point_at(place);
    Expr times, plus = offset;
    if (scale.exists())
      times = place == 0 ? scale : scale * part;
    else if (place != 0 || zero != 0)
      times = b_.real(part, one);
    if (zero != 0) {
      const Expr moved = scale.exists() ? times * zero : b_.real(part * zero, one);
      plus = plus.exists() ? plus + moved : moved;
    }
    by_place[place] = {times, plus};
  }
  const auto vector = [&](auto which) {
    if (by_place.size() == 1) return b_.splat(which(by_place.begin()->second), count);
    return b_.join(count, [&](int i) { return which(by_place.at(places[i])); });
  };
  const auto& [times, plus] = by_place.begin()->second;
  const bool has_plus = plus.exists(), has_times = times.exists();
  if (!has_times && !has_plus) return numbers;
  const Expr all_times = has_times ? vector([](const auto& x) { return x.first; }) : b_.real(1, b_.type(numbers));
  if (!has_plus) return numbers * all_times;
  return fma(numbers, all_times, vector([](const auto& x) { return x.second; }));
}

// Makes an operand for each step of a stage, the `of_unit`th of its unit, some steps at a time.
void HeldKernel::numbers_of(Expr lane, Expr stage, int64_t of_unit, const Use& use) {
  const FragmentOrder& order = t_.unit.order;
  const FactorForm& form = t_.unit.factor;
  const DotLoad& weight = p_.loads[1];
  const int64_t share = std::ssize(held_.column_parts), all = t_.steps() * share, group = order.of_group();
  const int64_t units = std::max<int64_t>(HeldPlan::kStage / order.unit, 1), of_one = all / units;
  const int64_t behind = (t_.unit.lanes_k - 1) * order.lane_bytes, blocks = order.unit / weight.format->block;
  const Expr in_group = lane % int64_t{t_.tile.wave};
  const Expr lane_k = FragmentDigits::group(b_, held_.columns, in_group);
  const Expr first_row =
      lane / int64_t{t_.tile.wave} * t_.tile.row->m + FragmentDigits::number(b_, held_.rows, in_group);
  factor_->enter(lane);
  for (int64_t u = 0; u < units; ++u) {
    const Expr k = units > 1 ? stage * HeldPlan::kStage + u * order.unit : (stage - of_unit) * HeldPlan::kStage;
    std::vector<std::unique_ptr<Unpack>> codes, scales;
    for (const FragmentDigits::Part& part : held_.row_parts) {
      const Expr row = first_row + part.offset;
      const auto cursor = [&](Expr further, int64_t hidden) {
        auto made = std::make_unique<Unpack>(b_, *weight.format, w_.buffer(0), weight.rows, weight.columns);
        made->use(m_);
        if (weight.format->row_bytes > 0 || weight.format->tensor_bytes > 0) {
          const Expr there = min(m0_ + row, b_.i64(transposed_.m.extent - 1));
          made->enter_row((w_.base(0) + there * transposed_.m.strides[0]) / weight.columns);
        }
        weights_->enter_block(*made, row, k, blocks, further, hidden);
        return made;
      };
      codes.push_back(cursor(lane_k * order.lane_bytes, behind));
      scales.push_back(form.scaled.scale || form.scaled.offset ? cursor({}, 0) : nullptr);
    }
    const int64_t first = units > 1 ? 0 : of_unit * all, count = std::min({group, of_one, kMadeAtOnce});
    for (int64_t i = first; i < first + of_one; i += count) {
      const std::vector<int64_t> elements(order.elements.begin() + i, order.elements.begin() + i + count);
      // Places for just these elements: together with others, codes may stay at other bit positions.
      std::vector<int> places = code_places(*weight.format, form, elements);
      places.resize(count, 0);
      std::vector<Expr> runs;
      for (size_t r = 0; r < codes.size(); ++r) {
        const auto of_group = [&](const std::optional<RoutineExpr>& e) {
          return e ? scales[r]->expression(*e, {i / group * order.group}, true) : Expr{};
        };
        const Expr numbers = cast(factor_->numbers(*codes[r], elements), Scalar::f32);
        const Expr x = scaled(numbers, places, of_group(form.scaled.scale), of_group(form.scaled.offset));
        runs.push_back(cast(x, Scalar::bf16));
      }
      BlockProduct::RegisterOperand steps;
      for (int64_t step = 0; step < count / share; ++step)
        steps.push_back(held_.operand(b_, machine::operand_type(*t_.tile.row, 1), runs, step));
      use(std::move(steps));
    }
  }
}

// The products of a stage begin some steps at a time; in between, lanes unpack the numbers of the next steps: a product
// begins only after the previous one has begun. After the first ones those of the previous stage are done, and their
// numbers may be overwritten.
void HeldKernel::multiply_stage(Expr lane, Expr stage, int64_t number) {
  const std::vector<BufferId>&mine = held_numbers_[number % 2], &other = held_numbers_[1 - number % 2];
  const VType type = machine::operand_type(*t_.tile.row, 1);
  const auto load = [&](BufferId x) { return b_.load(x, type, b_.i64(0), 16); };
  const Expr from = panel(stage);
  size_t step = 0;
  numbers_of(lane, stage, number % t_.unit_stages(), [&](const BlockProduct::RegisterOperand& made) {
    const bool is_first = step == 0;
    const Expr here = from + int64_t(step) * t_.tile.row->k * 2;
    BlockProduct::RegisterOperand held;
    for (const Expr x : made) {
      b_.store(mine[step], x, b_.i64(0), 16);
      held.push_back(load(mine[step++]));
    }
    product_->begin(lane, held, {panel_, here});
    b_.commit(loop::Flow::products);
    // After each of them, even if nothing is to be overwritten: if more than one is in flight while lanes unpack
    // numbers, ptxas serializes all of them (C7513).
    b_.wait(loop::Flow::products, 1);
    if (!is_first) return;
    for (const BufferId x : other) b_.store(x, b_.ready(load(x)), b_.i64(0), 16);
  });
}

void HeldKernel::write_part(Expr lane) {
  const int64_t columns = p_.n.extent;
  product_->each_sum(lane, [&](Expr row, Expr column, Expr sums) {
    const Expr weight_row = m0_ + row;
    for (int i = 0; i < b_.type(sums).lanes; ++i) {
      const Expr m = n0_ + column + i;
      const auto put = [&] {
        const Expr at = (split_ * p_.m.extent + m) * columns + weight_row;
        b_.store(partial_, b_.extract(sums, i), at * 4, 4);
      };
      b_.branch((m < p_.m.extent) & (weight_row < columns), put);
    }
  });
}

// Adds the sums of all slices to those of the first, through the memory of the panels, which is no longer read.
// Adjacent lanes have adjacent sums there.
void HeldKernel::add_slices() {
  const int64_t each = product_->run(Side::a) * 4, lanes_of_slice = t_.tile.lanes();
  const auto place = [&](Expr lane, int64_t number, Expr slice) {
    const int64_t sums = t_.tile.m() * t_.tile.n() * 4;
    return slice * sums + (lane + number * lanes_of_slice) * each;
  };
  b_.barrier();
  lanes([&](Expr lane) {
    b_.branch(w_.i64(0) < slice_, [&] {
      int64_t number = 0;
      product_->each_sum(
          lane, [&](Expr, Expr, Expr x) { b_.store(panel_, x, place(lane, number++, slice_ - 1), int(each)); });
    });
  });
  b_.barrier();
  lanes([&](Expr lane) {
    in_first_slice([&] {
      int64_t number = 0;
      product_->change_sums(lane, [&](Expr, Expr, Expr x) {
        for (int64_t slice = 1; slice < t_.slices; ++slice)
          x = x + b_.load(panel_, b_.type(x), place(lane, number, b_.i64(slice - 1)), int(each));
        ++number;
        return x;
      });
    });
  });
}

void HeldKernel::write_block(Expr block) {
  prepare();
  // Adjacent blocks have the same rows of the weight.
  const int64_t row_tiles = t_.row_tiles(p_), tiles = t_.weight_tiles(p_) * row_tiles;
  m0_ = block % tiles / row_tiles * t_.tile.m();
  n0_ = block % row_tiles * t_.tile.n();
  split_ = t_.splits == 1 ? w_.i64(0) : block / tiles;
  block_from_ = split_ * t_.split_stages;
  // At least one iteration, and code generators see that: if sums after the loop might not come from a product, they
  // would serialize the products.
  const auto rounds_of = [&](int64_t stages) { return w_.i64(stages / t_.unrolled() / t_.slices); };
  const int64_t last_stages = t_.stages - (t_.splits - 1) * t_.split_stages;
  rounds_ = rounds_of(last_stages);
  if (t_.splits > 1 && last_stages != t_.split_stages)
    rounds_ = select(split_ < t_.splits - 1, rounds_of(t_.split_stages), rounds_);
  w_.enter_outer(w_.i64(0));
  fill_->enter_tile(n0_, w_.base(1));
  weights_->enter(m0_);
  const auto copy = [&](Expr lane, Expr stage) {
    b_.branch(stage < to_, [&] { fill_->copy(lane, {w_.i64(0), stage * HeldPlan::kStage}, panel_, panel(stage)); });
  };
  wait_and_barrier(0, [&](Expr lane) {
    pipeline_.begin([&] { weights_->begin_first(lane, from_, to_); });
    in_first_slice([&] {
      if (table_) table_->fill(lane, t_.tile.lanes());
      factor_->fill(lane);
    });
  });
  wait_and_barrier(t_.ahead - 1, [&](Expr lane) {
    product_->clear();
    const VType type = machine::operand_type(*t_.tile.row, 1);
    for (const auto& of_stage : held_numbers_)
      for (const BufferId x : of_stage) b_.store(x, b_.real(0, type), b_.i64(0), 16);
    for (int64_t i = 0; i < t_.ahead; ++i) pipeline_.begin([&] { copy(lane, from_ + i); });
  });
  b_.loop(LoopKind::serial, w_.i64(0), rounds_, 1, [&](Expr round) {
    for (int64_t i = 0; i < t_.unrolled(); ++i)
      wait_and_barrier(t_.ahead - 1, [&](Expr lane) {
        const Expr stage = from_ + round * t_.unrolled() + i;
        multiply_stage(lane, stage, i);
        pipeline_.begin([&] {
          copy(lane, stage + t_.ahead);
          weights_->begin_next(lane, stage, from_, to_);
        });
      });
  });
  lanes([&](Expr) {
    b_.wait(loop::Flow::products, 0);
    product_->ready();
  });
  if (t_.slices > 1) add_slices();
  BlockWrite write(w_, transposed_, *product_, Builder::FastMath{m_.power2, m_.reciprocal, ""});
  lanes([&](Expr lane) { in_first_slice([&] { t_.splits > 1 ? write_part(lane) : write.result(lane, m0_, n0_); }); });
}

}  // namespace

void write_held(const graph::Graph& g, const DotProblem& p, const HeldPlan& t, const machine::Machine& m,
                Synthesis& out) {
  const int rows = out.scratch.size();
  out.scratch.push_back(HeldRows::bytes(p));
  const int partial = out.scratch.size();
  const BlockPlan merged = HeldKernel::merged(t);
  if (t.splits > 1) out.scratch.push_back(partial_bytes(p, merged));
  out.steps.push_back(HeldRows::write(g, p, t.unit, rows));
  const std::string shape = describe_shape(p);
  DotProblem product = p;
  if (t.splits > 1) {  // a later step has the maps and the result
    product.epilogue.clear();
    product.result = -1;
    product.loads.resize(2);
  }
  Step step = HeldKernel(g, product, t, m, rows, partial).write(fmt::format("{} {}", shape, describe(t, p)));
  step.flops = p.flops();
  out.steps.push_back(std::move(step));
  if (t.splits > 1) out.steps.push_back(write_merge(g, p, merged, partial));
}

}  // namespace lumen::synth
