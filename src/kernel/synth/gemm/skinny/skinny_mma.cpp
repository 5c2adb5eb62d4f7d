// The nest of a block: stages of K of its rows of the weight, copied as they lie in memory, and of the activations that
// an earlier step has rounded. Sums over K are added in the order of units, then waves.
#include "kernel/synth/gemm/skinny/skinny_mma.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/activation_panel.h"
#include "kernel/synth/gemm/skinny/activation_round.h"
#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/mma/fragment_digits.h"
#include "kernel/synth/step/software_pipeline.h"

namespace lumen::synth {
namespace {

using Part = FragmentDigits::Part;

constexpr int64_t kUnrolled = 256;  // elements of K up to which a wave's units of a stage are unrolled
constexpr int kQuad = 4;
constexpr int64_t kFirst = 1;           // least stages of the weight that are requested before activations
constexpr int64_t kScalesTogether = 8;  // groups

class SkinnyMmaKernel {
 public:
  SkinnyMmaKernel(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                  const RoundedScratch& rounded)
      : p_(with_rounded(p, t, rounded)),
        t_(t),
        m_(m),
        w_(g, p_, "dot"),
        b_(w_.b),
        pipeline_(b_, {.lanes = t.lanes(), .buffers = t.buffers}),
        n_tiles_(static_cast<int>(t.columns / t.row->n)) {
    if (rounded.sums >= 0) laid_sums_ = w_.scratch_param("sums", rounded.sums, t.sum_bytes(), false);
    if (rounded.scales >= 0) scales_ = w_.scratch_param("scales", rounded.scales, t.rows * 4, false);
    const auto& operands = t_.row->collective->operands;
    acc_ = FragmentDigits::of(operands[0].fragment);
    left_ = FragmentDigits::of(operands[1].fragment);
    right_ = FragmentDigits::of(operands[2].fragment);
    acc_type_ = {Scalar::f32, operands[0].fragment.lane_bits / 32};
    // Columns of sums are contiguous, row by row.
    const int columns = acc_.column_parts.size();
    for (int i = 0; columns > 1 && i < acc_type_.lanes; ++i) {
      const Part &row = acc_.row_parts[i / columns], &column = acc_.column_parts[i % columns];
      LUMEN_CHECK(row.element + column.element == i && column.offset == i % columns);
    }
    // Lanes of both factors share K in the same way.
    LUMEN_CHECK(left_.column_parts.size() == right_.column_parts.size() && left_.row_parts.size() <= 2 &&
                right_.row_parts.size() == 1);
    for (size_t i = 0; i < left_.column_parts.size(); ++i)
      LUMEN_CHECK(left_.column_parts[i].offset == right_.column_parts[i].offset);
  }

  Step write(std::string plan) {
    blocks_ = (p_.n.extent + t_.block_rows() - 1) / t_.block_rows();
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(p_.outer_extent() * blocks_), 1, [&](Expr block) { write_block(block); });
    return w_.step(std::move(plan));
  }

 private:
  // The first operand is the earlier step's scratch, which this kernel addresses itself.
  static DotProblem with_rounded(DotProblem p, const SkinnyMmaPlan& t, const RoundedScratch& rounded) {
    DotLoad& a = p.loads[0];
    a.kind = DotLoad::Kind::memory;
    a.format = nullptr;
    a.scalar = t.factor.to;
    a.offset = 0;
    a.scratch = rounded.lines;
    a.elements = t.line_bytes() / scalar_bytes(a.scalar);
    for (DotIndex* i : {&p.m, &p.n, &p.k}) i->strides[0] = 0;
    for (DotIndex& i : p.outer) i.strides[0] = 0;
    return p;
  }
  void lanes(const std::function<void(Expr)>& body) { pipeline_.lanes(body); }

  void write_block(Expr block);
  void multiply(Expr lane, Expr stage, Expr buffer);
  // Data of the product that a wave computes at once, by tile: rows that the lane unpacks, rows of sums that it scales.
  struct Tile {
    std::vector<Expr> bytes;
    std::vector<std::unique_ptr<Unpack>> cursors, scaling;
    std::vector<Expr> scales, offsets;  // of some groups, in the layout of the sums
  };
  struct Unit {
    Expr number, buffer;  // in the stage; its buffer
    Expr column, lane_k, sum_column;
    std::vector<Tile> tiles;
    std::map<std::pair<int, int64_t>, Expr> vectors;  // of activations, by tile of columns
  };
  Unit enter_unit(Expr lane, Expr number, Expr buffer);
  void load_scales(Unit& unit, int64_t first);
  void multiply_group(Unit& unit, int64_t group, size_t within);  // index among the groups whose scales are loaded
  void multiply_unit(Expr lane, Expr number, Expr buffer);
  Expr row_of(Expr lane, int tile, const FragmentDigits::Digits& digits, const Part& part);  // of the block
  // Start of a row's unit, in bytes; with `lane_k`, of the part of a lane of those that share the row.
  Expr unit_byte(Expr row, Expr unit, Expr buffer, Expr lane_k = {});
  std::unique_ptr<Unpack> cursor(Expr row, Expr byte, int64_t blocks, int64_t hidden);
  Expr right_operand(const std::function<Expr(int64_t)>& vector, int64_t position);
  BufferId sum(int tile, int n) const { return sums_[tile * n_tiles_ + n]; }
  Expr load_sum(int tile, int n) { return b_.load(sum(tile, n), acc_type_, w_.i64(0), 16); }
  bool scales_late() const {  // those that are constant over rows
    const FactorForm& f = t_.factor;
    return f.scales_sums() && f.scaled.scale && !f.scaled.offset &&
           is_constant_in_row(*p_.loads[1].format, *f.scaled.scale);
  }
  bool scales_groups() const { return t_.factor.scales_sums() && !scales_late(); }
  void keep_sums(Expr lane);
  void write_sums(Expr lane);

  const DotProblem p_;
  const SkinnyMmaPlan& t_;
  const machine::Machine& m_;
  DotWriter w_;
  Builder& b_;
  SoftwarePipeline pipeline_;
  const int n_tiles_;
  FragmentDigits acc_, left_, right_;
  VType acc_type_;
  int64_t blocks_ = 1;
  std::unique_ptr<WeightCopies> copies_;
  std::unique_ptr<ActivationPanel> panel_;
  std::unique_ptr<PairTable> table_;
  std::unique_ptr<StreamFactor> factor_;
  std::vector<BufferId> sums_;
  BufferId laid_sums_ = -1, scales_ = -1;
  Expr first_;       // row of the rounded activations
  Expr n0_, shift_;  // the first row; bytes by which the stage is shifted from its place
};

Expr SkinnyMmaKernel::row_of(Expr lane, int tile, const FragmentDigits::Digits& digits, const Part& part) {
  const Expr wave = lane / m_.wave / t_.waves_k;
  const Expr row = wave * (int64_t{t_.tiles} * t_.row->m) + FragmentDigits::number(b_, digits, b_.lane_id());
  return row + (int64_t{tile} * t_.row->m + part.offset);
}

// Multiplies by the common alignment last, so that code generators can infer it.
Expr SkinnyMmaKernel::unit_byte(Expr row, Expr unit, Expr buffer, Expr lane_k) {
  const int64_t lane = !lane_k.exists() ? 0 : t_.order.lane_bytes;
  const int64_t whole =
      std::gcd(std::gcd(t_.stage_bytes(), t_.pitch), std::gcd(std::gcd(t_.unit_bytes, t_.copies().step()), lane));
  Expr at = buffer * (t_.stage_bytes() / whole) + row * (t_.pitch / whole);
  at = at + unit * (t_.unit_bytes / whole);
  if (lane > 0) at = at + lane_k * (lane / whole);
  if (shift_.exists()) at = at + shift_ / whole;
  return at * whole;
}

std::unique_ptr<Unpack> SkinnyMmaKernel::cursor(Expr row, Expr byte, int64_t blocks, int64_t hidden) {
  const DotLoad& load = p_.loads[1];
  auto out = std::make_unique<Unpack>(b_, *load.format, w_.buffer(1), load.rows, load.columns);
  out->use(m_);
  if (load.format->row_bytes > 0 || load.format->tensor_bytes > 0)
    out->enter_row((w_.base(1) + copies_->clamped(row) * p_.n.strides[1]) / load.columns);
  out->enter_copied(w_.i64(0), blocks, copies_->buffer(), byte, hidden);
  return out;
}

Expr SkinnyMmaKernel::right_operand(const std::function<Expr(int64_t)>& vector, int64_t position) {
  const VType type = machine::operand_type(*t_.row, 2);
  const auto share = std::ssize(right_.column_parts);
  std::vector<Expr> from{vector(position / SkinnyMmaPlan::kVector)};
  if (share > SkinnyMmaPlan::kVector) from.push_back(vector(position / SkinnyMmaPlan::kVector + 1));
  std::vector<int> mask(type.lanes, -1);
  for (int64_t i = 0; i < share; ++i) mask[right_.column_parts[i].element] = position % SkinnyMmaPlan::kVector + i;
  return b_.shuffle(from, mask);
}

SkinnyMmaKernel::Unit SkinnyMmaKernel::enter_unit(Expr lane, Expr number, Expr buffer) {
  const FragmentOrder& order = t_.order;
  const FactorForm& form = t_.factor;
  const Format* f = p_.loads[1].format.get();
  Unit out;
  out.number = number;
  out.buffer = buffer;
  out.column = FragmentDigits::number(b_, right_.rows, b_.lane_id());
  out.lane_k = FragmentDigits::group(b_, right_.columns, b_.lane_id());
  out.sum_column = FragmentDigits::number(b_, acc_.columns, b_.lane_id());
  const Expr lane_k = FragmentDigits::group(b_, left_.columns, b_.lane_id());
  for (int t = 0; t < t_.tiles; ++t) {
    Tile& tile = out.tiles.emplace_back();
    for (const Part& part : left_.row_parts) {
      const Expr row = row_of(lane, t, left_.rows, part), byte = unit_byte(row, number, buffer, lane_k);
      tile.bytes.push_back(byte);
      if (form.kind == FactorForm::Kind::plain) continue;
      const int64_t blocks = order.unit / f->block, behind = (t_.lanes_k - 1) * order.lane_bytes;
      tile.cursors.push_back(form.kind == FactorForm::Kind::decoded ? cursor(row, byte, blocks / t_.lanes_k, 0)
                                                                    : cursor(row, byte, blocks, behind));
    }
    for (const Part& part : acc_.row_parts) {
      if (!scales_groups()) break;
      const Expr row = row_of(lane, t, acc_.rows, part);
      tile.scaling.push_back(cursor(row, unit_byte(row, number, buffer), order.unit / f->block, 0));
    }
  }
  return out;
}

// Scales and offsets of some groups of the sequence, for the rows of the sums.
void SkinnyMmaKernel::load_scales(Unit& unit, int64_t first) {
  const ScaledForm& form = t_.factor.scaled;
  std::vector<int64_t> starts;
  for (int64_t i = first; i < std::min(first + kScalesTogether, t_.groups()); ++i)
    starts.push_back(t_.order.sequence[i] * t_.order.group);
  const auto fetch = [&](Tile& tile, const RoutineExpr& e) {
    std::vector<Expr> by_row, out;
    for (const auto& row : tile.scaling) by_row.push_back(row->expression(e, starts, true));
    for (size_t g = 0; g < starts.size(); ++g) {
      Expr all = b_.real(0, acc_type_);
      for (size_t r = 0; r < acc_.row_parts.size(); ++r) {
        const Expr x = starts.size() == 1 ? by_row[r] : b_.extract(by_row[r], g);
        for (const Part& c : acc_.column_parts) all = b_.insert(all, x, acc_.row_parts[r].element + c.element);
      }
      out.push_back(all);
    }
    return out;
  };
  for (Tile& tile : unit.tiles) {
    if (form.scale) tile.scales = fetch(tile, *form.scale);
    if (form.offset) tile.offsets = fetch(tile, *form.offset);
  }
}

void SkinnyMmaKernel::multiply_group(Unit& unit, int64_t group, size_t within) {
  const FactorForm& form = t_.factor;
  const int64_t own = t_.order.of_group(), first = group * own;
  const auto share = std::ssize(left_.column_parts);
  const std::vector<int64_t> elements(t_.order.elements.begin() + first, t_.order.elements.begin() + first + own);
  std::vector<std::vector<Expr>> numbers;
  for (const Tile& tile : unit.tiles) {
    numbers.emplace_back();
    for (size_t r = 0; r < left_.row_parts.size(); ++r)
      numbers.back().push_back(form.kind == FactorForm::Kind::plain
                                   ? factor_->numbers(copies_->buffer(), tile.bytes[r], own)
                                   : factor_->numbers(*tile.cursors[r], elements));
  }
  for (int n = 0; n < n_tiles_; ++n) {
    Expr activations;
    Expr correction;  // for the zero point: times the sum of activations
    if (t_.sums_activations()) {
      activations = panel_->sums(unit.buffer, unit.number, group, n, unit.sum_column);
      const auto over_rows = [&](Expr x) {
        std::vector<int> mask;
        for (int i = 0; i < acc_type_.lanes; ++i) mask.push_back(i % b_.type(x).lanes);
        return b_.type(x).lanes == 1 ? b_.splat(x, acc_type_.lanes) : b_.shuffle({x}, mask);
      };
      if (form.zero_point() != 0) correction = over_rows(activations * (form.zero_point() / t_.sum_factor()));
      activations = over_rows(activations);
    }
    const auto vector = [&](int64_t number) {
      const auto [found, fresh] = unit.vectors.try_emplace({n, number});
      if (fresh) found->second = panel_->vector(unit.buffer, unit.number, n, number, unit.column, unit.lane_k);
      return found->second;
    };
    for (int t = 0; t < t_.tiles; ++t) {
      const Tile& tile = unit.tiles[t];
      const bool apart = scales_groups() || form.zero_point() != 0;
      Expr products = form.zero_point() != 0 ? correction : apart ? b_.real(0, acc_type_) : load_sum(t, n);
      for (int64_t step = 0; step < own / share; ++step)
        products = b_.inst(t_.row->row, acc_type_,
                           {products, left_.operand(b_, machine::operand_type(*t_.row, 1), numbers[t], step),
                            right_operand(vector, first + step * share)});
      if (apart) {
        const Expr before = load_sum(t, n);
        products = tile.scales.empty() ? products + before : fma(products, tile.scales[within], before);
      }
      if (!tile.offsets.empty()) products = fma(tile.offsets[within], activations, products);
      b_.store(sum(t, n), products, w_.i64(0), 16);
    }
  }
}

void SkinnyMmaKernel::multiply_unit(Expr lane, Expr number, Expr buffer) {
  Unit unit = enter_unit(lane, number, buffer);
  for (int64_t i = 0; i < t_.groups(); ++i) {
    if (scales_groups() && i % kScalesTogether == 0) load_scales(unit, i);
    multiply_group(unit, t_.order.sequence[i], i % kScalesTogether);
  }
}

void SkinnyMmaKernel::multiply(Expr lane, Expr stage, Expr buffer) {
  const Expr wave_k = lane / m_.wave % t_.waves_k;
  factor_->enter(lane);
  shift_ = t_.copies().step() < t_.vector ? copies_->shift(stage) : Expr{};
  const auto some = [&](Expr deep) {
    const Expr unit = deep * t_.waves_k + wave_k;
    const auto one = [&] { multiply_unit(lane, unit, buffer); };
    w_.where(t_.units % t_.stage_units() == 0 ? Expr{} : stage * t_.stage_units() + unit < t_.units, one);
  };
  if (t_.deep * t_.order.unit > kUnrolled)
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.deep), 1, some);
  else
    for (int64_t deep = 0; deep < t_.deep; ++deep) some(w_.i64(deep));
}

// Stores each wave's sums into the memory that was the weight's; sums of waves that share K follow each other.
void SkinnyMmaKernel::keep_sums(Expr lane) {
  const Expr wave_k = lane / m_.wave % t_.waves_k;
  const Expr column = FragmentDigits::number(b_, acc_.columns, b_.lane_id());
  const Expr base = wave_k * t_.columns * t_.sums_pitch();
  for (int tile = 0; tile < t_.tiles; ++tile)
    for (const Part& r : acc_.row_parts) {
      const Expr row = row_of(lane, tile, acc_.rows, r);
      Expr scale;
      if (scales_late()) scale = cursor(row, w_.i64(0), 1, 0)->expression(*t_.factor.scaled.scale, 0, 1, false);
      for (int n = 0; n < n_tiles_; ++n)
        for (const Part& c : acc_.column_parts) {
          Expr x = b_.load(sum(tile, n), {Scalar::f32, 1}, w_.i64(int64_t{r.element + c.element} * 4), 4);
          if (scale.exists()) x = x * scale;
          const Expr m = column + (int64_t{n} * t_.row->n + c.offset);
          b_.store(copies_->buffer(), x, (base + (m * t_.sums_pitch() + row)) * 4, 4);
        }
    }
}

void SkinnyMmaKernel::write_sums(Expr lane) {
  const int64_t across = t_.block_rows() / kQuad, all = p_.m.extent * across;
  for (int64_t first = 0; first < all; first += t_.lanes()) {
    const Expr item = lane + first, m = item / across, row = item % across * kQuad;
    const Expr n = n0_ + row;
    const auto write = [&] {
      Expr total;
      for (int k = 0; k < t_.waves_k; ++k) {
        const Expr at = (m + k * t_.columns) * t_.sums_pitch() + row;
        const Expr x = b_.load(copies_->buffer(), {Scalar::f32, kQuad}, at * 4, 16);
        total = !total.exists() ? x : total + x;
      }
      if (scales_ >= 0) {
        const Expr scale = b_.load(scales_, {Scalar::f32, 1}, (first_ + m) * 4, 4);
        total = total * b_.splat(scale, kQuad);
      }
      const Expr count = p_.n.extent % kQuad == 0 ? Expr{} : min(p_.n.extent - n, w_.i64(kQuad));
      w_.finish_vector(total, m, n, count);
    };
    Expr exists;
    if (first + t_.lanes() > all) exists = item < all;
    if (p_.n.extent % t_.block_rows() != 0) {
      const Expr inside = n < p_.n.extent;
      exists = !exists.exists() ? inside : exists & inside;
    }
    w_.where(exists, write);
  }
}

void SkinnyMmaKernel::write_block(Expr block) {
  n0_ = block % blocks_ * t_.block_rows();
  const Expr outer = block / blocks_;
  w_.enter_outer_of_block(outer);
  copies_ = std::make_unique<WeightCopies>(w_, p_, t_.copies(), t_.stream_bytes(), n0_);
  first_ = w_.laid_row(outer, t_.columns);
  panel_ = std::make_unique<ActivationPanel>(w_, t_, w_.buffer(0), laid_sums_, first_);
  if (t_.factor.table.size() > 0) table_ = std::make_unique<PairTable>(b_, m_, t_.factor.table);
  const bool aligned =
      (t_.stage_bytes() | t_.pitch | t_.unit_bytes | t_.order.lane_bytes | t_.copies().step()) % kQuad == 0;
  factor_ =
      std::make_unique<StreamFactor>(b_, m_, p_.loads[1].format.get(), t_.factor, table_.get(), aligned, t_.lanes());
  for (int i = 0; i < t_.tiles * n_tiles_; ++i) sums_.push_back(b_.alloc(int64_t{acc_type_.lanes} * 4, 16));
  const int64_t stages = t_.stages();
  const bool early = m_.follows && w_.hold_constant(1);
  w_.where_row(w_.i64(0), [&] {
    lanes([&](Expr lane) {
      for (const BufferId s : sums_) b_.store(s, b_.real(0, acc_type_), w_.i64(0), 16);
      const auto of_stage = [&](auto& from) {
        return [&](int64_t i) {
          if (i < stages) from.begin(lane, w_.i64(i), w_.i64(i));
        };
      };
      // Some of the weight first, because it depends on no earlier step: all of it while that step runs, if allowed.
      const SoftwarePipeline::Prologue prologue{.constant = of_stage(*copies_),
                                                .rest = of_stage(*panel_),
                                                .early = early ? pipeline_.ahead() : kFirst,
                                                .waits = early};
      pipeline_.begin_early(prologue);
      pipeline_.wait_for_kernels(prologue);
      pipeline_.begin_first(prologue);
      if (table_) table_->fill(lane, t_.lanes());
      factor_->fill(lane);
    });
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(stages), 1, [&](Expr stage) {
      const auto use = [&](Expr lane) {
        const Expr next = stage + pipeline_.ahead(), number = stage % t_.buffers;
        const Expr exists = next < stages;
        const Expr half = w_.i64(t_.lanes() / 2);
        const auto copy = [&](Expr mine) {
          b_.branch(exists & mine, [&] {
            copies_->begin(lane, next, next % t_.buffers);
            panel_->begin(lane, next, next % t_.buffers);
          });
        };
        // Issuing copies takes long: half of the waves multiply meanwhile.
        copy(lane < half);
        multiply(lane, stage, number);
        pipeline_.begin([&] { copy(half <= lane); });
      };
      pipeline_.step({.use = use});
    });
    pipeline_.wait_and_barrier(0);
    lanes([&](Expr lane) { keep_sums(lane); });
    b_.barrier();
    lanes([&](Expr lane) {
      w_.check_pick();
      write_sums(lane);
    });
  });
}

}  // namespace

void write_skinny_mma(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                      Synthesis& out) {
  const RoundedScratch rounded = declare_rounded(t, out);
  out.steps.push_back(write_round_kernel(g, p, t, m, rounded));
  Step step = SkinnyMmaKernel(g, p, t, m, rounded).write(fmt::format("{} {}", describe_shape(p), describe(t, p)));
  step.flops = p.flops();
  out.steps.push_back(std::move(step));
}

}  // namespace lumen::synth
