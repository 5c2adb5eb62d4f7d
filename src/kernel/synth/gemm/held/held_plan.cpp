// See held_plan.h.
#include "kernel/synth/gemm/held/held_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/held/held_rows.h"

namespace lumen::synth {
namespace {

constexpr int64_t kLeastRows = 33;     // of activations: fewer are for streamed kernels
constexpr int64_t kLeastColumns = 64;  // of the weight
constexpr int64_t kMostSplits = 8;
constexpr size_t kCandidates = 4;
constexpr int64_t kMostBeside = 3;                             // blocks of a multiprocessor
constexpr int64_t kAllRegisters = 65536, kHeldRegisters = 80;  // of it; of a lane, besides its sums
constexpr int64_t kMostSliced = 256;  // slices x columns: sums take registers, of which a block has only so many
// Factor on the prediction: in models less of a weight is in caches than in measurements.
constexpr double kHeldInModels = 1.1;

bool lies_plainly(const DotProblem& p) {
  const DotLoad& a = p.loads[0];
  const bool plain = p.is_plain() && p.codes.empty() && p.outer.empty() && p.outer_k.empty() && p.joint_m.empty() &&
                     p.joint_k.empty() && !p.reads_zeros() && p.sum == Scalar::f32 && p.result_scratch < 0;
  return plain && a.kind == DotLoad::Kind::memory && !a.code && (a.scalar == Scalar::f32 || a.scalar == Scalar::bf16) &&
         a.scratch < 0 && p.k.strides[0] == 1 && p.n.strides[0] == 0 && p.m.strides[0] % HeldRows::kVector == 0 &&
         a.offset % HeldRows::kVector == 0 && p.loads[1].kind == DotLoad::Kind::packed &&
         p.loads[1].format->tile_bytes == 0 && p.k.strides[1] == 1 && p.m.strides[1] == 0;
}

class Chooser {
 public:
  Chooser(const DotProblem& p, const machine::Machine& m) : p_(p), transposed_(p), m_(m) {
    transposed_.swap_operands();
  }

  std::vector<HeldPlan> choose() {
    for (const int n : {64, 128, 192, 256})
      for (const int groups : {1, 2})
        for (const int64_t slices : {1, 2, 4})
          if (slices * groups * n <= kMostSliced || slices == 1) consider(n, groups, slices);
    std::stable_sort(out_.begin(), out_.end(),
                     [](const HeldPlan& x, const HeldPlan& y) { return x.cycles < y.cycles; });
    if (out_.size() > kCandidates) out_.resize(kCandidates);
    return std::move(out_);
  }

 private:
  void consider(int n, int groups, int64_t slices) {
    const auto find = [&](Scalar s) { return find_shared_matrix(m_, machine::Factor{s, {}}, n, false, false, true); };
    const machine::MatrixRow *f16 = find(Scalar::f16), *bf16 = find(Scalar::bf16);
    if (!f16 || !bf16) return;
    HeldPlan t;
    t.slices = slices;
    t.unit.row = f16;  // codes are first decoded to eleven significant bits
    if (!find_stream_unit(p_, m_, t.unit)) return;
    using Kind = FactorForm::Kind;
    const int64_t unit = t.unit.order.unit;
    if (t.unit.factor.kind == Kind::plain || t.unit.factor.kind == Kind::decoded || !HeldRows::can_order(t.unit))
      return;
    if (unit % HeldPlan::kStage != 0 && HeldPlan::kStage % unit != 0) return;
    t.tile = {bf16, Scalar::bf16, bf16->collective->lanes, groups, 1, 1, 1, HeldPlan::kStage};
    if (p_.k.extent % (HeldPlan::kStage * t.unrolled()) != 0) return;
    t.stages = p_.k.extent / HeldPlan::kStage;
    if (!copy_ahead(t)) return;
    for (int64_t splits = 1; splits <= kMostSplits; ++splits) {
      const int64_t rounds = t.stages / t.unrolled();
      t.split_stages = (rounds + splits - 1) / splits * t.unrolled();
      t.splits = (t.stages + t.split_stages - 1) / t.split_stages;
      if (t.splits != splits || (splits > 1 && t.split_stages < HeldPlan::kLeastPart)) continue;
      if (t.split_stages % (t.unrolled() * slices) != 0 || t.stages % (t.unrolled() * slices) != 0) continue;
      t.cycles = cost(t);
      out_.push_back(t);
    }
  }

  // Four stages ahead, if as many blocks fit a multiprocessor as with two, and no other slices hide the latency.
  bool copy_ahead(HeldPlan& t) const {
    const auto with = [&](int64_t ahead) {
      HeldPlan out = t;
      out.ahead = ahead;
      auto weights =
          WeightStages::plan(transposed_, HeldPlan::kStage, t.unrolled(), t.tile.m(), t.tile.lanes(), ahead, 0);
      if (!weights) return std::optional<HeldPlan>();
      weights->slices = t.slices;
      out.weights = *weights;
      return shared_bytes(out) <= m_.shared_bytes ? std::optional(out) : std::nullopt;
    };
    const std::optional<HeldPlan> two = with(2), four = t.slices == 1 ? with(4) : std::nullopt;
    if (!two) return false;
    t = four && beside(*four) == beside(*two) ? *four : *two;
    return true;
  }

  // Blocks that fit a multiprocessor.
  int64_t beside(const HeldPlan& t) const {
    if (t.tile.groups_m > 1) return 1;
    const int64_t registers = kHeldRegisters + t.tile.n() / 2;  // of a lane
    const int64_t fit = std::min(m_.shared_bytes / shared_bytes(t), kAllRegisters / (t.lanes() * registers));
    return std::clamp<int64_t>(fit, 1, kMostBeside);
  }

  int64_t shared_bytes(const HeldPlan& t) const {
    const int64_t tables = t.unit.factor.mask_bytes(*p_.loads[1].format, t.tile.lanes()) + t.unit.factor.table.size();
    const int64_t panels = t.slices * t.panels() * BlockProduct::panel_bytes(m_, t.tile, BlockTile::Side::b);
    return panels + t.weights.bytes() + tables + BlockProduct::kAlign;
  }

  double cost(const HeldPlan& t) const {
    const machine::BlockCosts& costs = m_.costs.blocks;
    const double groups = t.tile.groups_m, columns = t.tile.n();
    const double bytes = t.weights.copies.rows * t.weights.copies.chunk / double(t.weights.together);
    const double alone = costs.held_stage + costs.held_group * groups + costs.held_column * (groups + 1) * columns +
                         costs.held_byte * bytes;
    const double group = costs.held_beside + costs.held_column_beside * columns;
    // A stage of every slice of `of` blocks.
    const auto stage = [&](int64_t of) { return std::max(alone, double(of) * t.slices * groups * group); };
    const double stages = double(t.split_stages) / double(t.slices);
    const int64_t fits = beside(t), blocks = t.blocks(p_);
    const int64_t whole = blocks / (m_.units * fits), left = blocks % (m_.units * fits);
    double cycles = double(whole) * (stages * stage(fits) + costs.held_enter);
    if (left > 0) cycles += stages * stage((left + m_.units - 1) / m_.units) + costs.held_enter;
    cycles += costs.held_slice * double(t.slices - 1);
    if (t.splits > 1)
      cycles += costs.held_merge +
                4.0 * p_.m.extent * p_.n.extent * double(t.splits + 1) / (m_.units * costs.held_merged_bytes);
    return kHeldInModels * cycles;
  }

  const DotProblem& p_;
  DotProblem transposed_;
  const machine::Machine& m_;
  std::vector<HeldPlan> out_;
};

}  // namespace

std::vector<HeldPlan> choose_held(const DotProblem& p, const machine::Machine& m, bool exact) {
  if (m.wave <= 1 || !m.async_copies || exact || !lies_plainly(p)) return {};
  if (p.m.extent < kLeastRows || p.n.extent < kLeastColumns) return {};
  return Chooser(p, m).choose();
}

std::string describe(const HeldPlan& t, const DotProblem& p) {
  std::string text = fmt::format("weight in registers {}x{}x{} {} {}", t.tile.m(), t.tile.n(), HeldPlan::kStage,
                                 t.unit.factor.name(), t.panels());
  if (t.slices > 1) text += fmt::format(" slices {}", t.slices);
  if (t.splits > 1) text += fmt::format(" splits {}", t.splits);
  return text + " rounded to bf16 " + t.tile.row->row;
}

}  // namespace lumen::synth
