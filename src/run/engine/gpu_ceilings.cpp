#include "run/engine/gpu_ceilings.h"

#include <algorithm>
#include <map>

#include "kernel/synth/mma/block_product.h"

namespace lumen::run {
namespace {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;
using machine::MatrixRow;
using synth::BlockProduct;
using synth::BlockTile;
using Side = BlockProduct::Side;

constexpr int64_t kBlocks = 4096;  // more than any GPU runs concurrently
constexpr int64_t kLanes = 256;
constexpr int kChains = 12;  // independent f32 sums per lane
constexpr int64_t kSteps = 512;
constexpr int kMostColumnsTwice = 128;
constexpr double kProducts = 8e12;  // multiplications per kind of instruction: some hundredths of a second

loop::Kernel f32_kernel(double* work) {
  Builder b("ceiling_f32");
  const VType f32{Scalar::f32, 1};
  const BufferId in = b.param("in", 64, false), out = b.param("out", kBlocks * kLanes * 4, true);
  b.loop(LoopKind::grid, b.i64(0), b.i64(kBlocks), 1, [&](Expr block) {
    b.loop(LoopKind::lane, b.i64(0), b.i64(kLanes), 1, [&](Expr lane) {
      const Expr x = b.load(in, f32, b.i64(0), 4), y = b.load(in, f32, b.i64(4), 4);
      std::vector<BufferId> sums;
      for (int i = 0; i < kChains; ++i) {
        sums.push_back(b.alloc(4));
        b.store(sums.back(), b.real(i, f32), b.i64(0));
      }
      b.loop(LoopKind::serial, b.i64(0), b.i64(kSteps), 1, [&](Expr) {
        for (int repeat = 0; repeat < 4; ++repeat)
          for (const BufferId s : sums) b.store(s, fma(b.load(s, f32, b.i64(0)), x, y), b.i64(0));
      });
      Expr all = b.load(sums[0], f32, b.i64(0));
      for (size_t i = 1; i < sums.size(); ++i) all = all + b.load(sums[i], f32, b.i64(0));
      b.store(out, all, (block * kLanes + lane) * 4);
    });
  });
  *work = 2.0 * 4 * kChains * (kSteps * kBlocks * kLanes);
  return b.finish();
}

// A tile as kernels use it, with one stage of K that stays in place.
BlockTile tile_of(const machine::Machine& m, const MatrixRow& r) {
  BlockTile tile{&r, r.a.scalar, r.collective->lanes, r.in_shared ? 2 : 4, r.in_shared ? 1 : 2, 1, 1, 1};
  if (!r.in_shared) {
    tile.tiles_m = std::max(1, 64 / r.m);
    tile.tiles_n = std::max(1, 32 / r.n);
  }
  // Instructions that read shared memory are waited for at the end of a stage: use a long one.
  const int64_t step = BlockProduct::step_k(m, tile), bytes = r.in_shared ? 512 : 128;
  tile.stage_k = std::max<int64_t>(step, bytes / scalar_bytes(r.a.scalar) / step * step);
  return tile;
}

loop::Kernel product_kernel(const machine::Machine& m, const BlockTile& tile, const std::string& name, double* work) {
  const double once = tile.m() * tile.n() * tile.stage_k;
  const int64_t rounds = std::max<int64_t>(8, static_cast<int64_t>(kProducts / once) / kBlocks);
  *work = 2 * once * (rounds * kBlocks);
  Builder b("ceiling_" + name);
  const int64_t left = BlockProduct::panel_bytes(m, tile, Side::a), right = BlockProduct::panel_bytes(m, tile, Side::b);
  const BufferId in = b.param("in", left + right, false), out = b.param("out", kBlocks * tile.lanes() * 4, true);
  b.loop(LoopKind::grid, b.i64(0), b.i64(kBlocks), 1, [&](Expr block) {
    BlockProduct p(b, m, tile);
    const BufferId as = b.alloc(left, BlockProduct::kAlign, loop::Space::shared),
                   bs = b.alloc(right, BlockProduct::kAlign, loop::Space::shared);
    const Expr lanes = b.i64(tile.lanes());
    b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) {
      p.clear();
      const auto fill = [&](BufferId to, int64_t from, int64_t bytes) {
        b.loop(LoopKind::serial, lane * 4, b.i64(bytes), tile.lanes() * 4,
               [&](Expr at) { b.store(to, b.load(in, {Scalar::i32, 1}, at + from, 4), at, 4); });
      };
      fill(as, 0, left);
      fill(bs, left, right);
    });
    b.barrier();
    // Even-numbered bytes have a zero top bit (random_inputs.h). Compilers cannot assume it, so they do not unroll the
    // loop.
    const Expr top = b.load(in, {Scalar::u8, 1}, b.i64(0), 1) >> 7;
    const Expr end = rounds + cast(top, Scalar::i64);
    b.loop(LoopKind::serial, b.i64(0), end, 1, [&](Expr) {
      b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) { p.multiply(lane, as, b.i64(0), bs, b.i64(0)); });
    });
    b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) {
      const BufferId all = b.alloc(4);
      b.store(all, b.real(0, {Scalar::f32, 1}), b.i64(0));
      p.each_sum(lane, [&](Expr, Expr, Expr sums) {
        const Expr before = b.load(all, {Scalar::f32, 1}, b.i64(0));
        b.store(all, before + (b.type(sums).lanes == 1 ? sums : b.fold(ScalarOp::add_, sums)), b.i64(0));
      });
      b.store(out, b.load(all, {Scalar::f32, 1}, b.i64(0)), (block * tile.lanes() + lane) * 4);
    });
  });
  return b.finish();
}

// "mma.16x8x16.bf16bf16.f32": the part after the sizes.
std::string what_is_multiplied(const std::string& row) {
  const size_t sizes = row.find('.');
  return row.substr(row.find('.', sizes + 1) + 1);
}

}  // namespace

std::vector<CeilingKernel> gpu_ceiling_kernels(const machine::Machine& m) {
  std::vector<CeilingKernel> out;
  double work = 0;
  loop::Kernel f32 = f32_kernel(&work);
  out.push_back({"", "f32", std::move(f32), work});
  std::map<std::string, const MatrixRow*> largest;
  for (const MatrixRow& r : m.matrices) {
    if (r.scale_group > 0 || r.a_in_registers || r.a_transposed || r.b_transposed) continue;
    // Sums that are moved out need a second set of registers.
    if (r.short_sums && r.n > kMostColumnsTwice) continue;
    const MatrixRow*& kept = largest[what_is_multiplied(r.row)];
    const auto size = [](const MatrixRow& x) { return int64_t{x.m} * x.n * x.k; };
    if (!kept || size(*kept) < size(r)) kept = &r;
  }
  for (const auto& [name, row] : largest) {
    const BlockTile tile = tile_of(m, *row);
    loop::Kernel kernel = product_kernel(m, tile, name, &work);
    const bool is_short = row->a.code || row->a.scalar == Scalar::i8;
    const char* kind = is_short                        ? "8 bit"
                       : row->a.scalar == Scalar::bf16 ? "bf16"
                       : row->a.scalar == Scalar::f16  ? "f16"
                                                       : "f32";
    out.push_back({name, kind, std::move(kernel), work});
  }
  return out;
}

}  // namespace lumen::run
