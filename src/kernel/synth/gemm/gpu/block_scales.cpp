// See block_scales.h.
#include "kernel/synth/gemm/gpu/block_scales.h"

#include <algorithm>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

constexpr BlockProduct::Side kSides[] = {BlockProduct::Side::a, BlockProduct::Side::b};

const std::optional<RunScales>& scales_of(const DotProblem& p, BlockProduct::Side side) {
  return p.run_scales[side == BlockProduct::Side::a ? 0 : 1];
}

// Rows of a tile that share scales, wherever the tile begins.
int64_t shared_rows(const RunScales& scales, int64_t lines) {
  return std::gcd(scales.rows, lines);
}

}  // namespace

int64_t BlockScales::count(const DotProblem& p, const BlockTile& tile, Side side) {
  const auto& scales = scales_of(p, side);
  return scales ? tile.lines(side) / shared_rows(*scales, tile.lines(side)) : 0;
}

BlockScales::BlockScales(DotWriter& w, const DotProblem& p, BlockProduct& product, int places)
    : w_(w), b_(w.b), p_(p), product_(product) {
  for (const Side side : kSides) {
    OfSide& s = at(side);
    s.count = count(p, product.tile(), side);
    if (s.count == 0) continue;
    s.shared = product.tile().lines(side) / s.count;
    s.rounds = ceil_div(s.count, product.tile().lanes());
    s.buffer = b_.alloc(s.count * places * 4, BlockProduct::kUnit, loop::Space::shared);
    for (int64_t i = 0; i < s.rounds; ++i) s.held.push_back(b_.alloc(4));
  }
}

// Reads the scale of a row of a (of b: a column of the result), which must exist.
Expr BlockScales::read(Side side, Expr line, Expr k) {
  const size_t load = scales_of(p_, side)->load;
  const DotLoad& l = p_.loads[load];
  const DotIndex& rows = side == Side::a ? p_.m : p_.n;
  const Expr origin = w_.base(load) / l.columns;
  const bool along = p_.k.strides[load] == 1;
  const Expr row = origin + (along ? line * (rows.strides[load] / l.columns) : k), column = along ? k : line;
  Unpack cursor(b_, *l.format, w_.buffer(load), l.rows, l.columns);
  cursor.enter_row(row);
  cursor.enter_block(row * l.columns + column);
  return cursor.values(0, 1);
}

std::vector<Expr> BlockScales::fetch(Expr lane, Expr k) {
  std::vector<Expr> out;
  for (const Side side : kSides) {
    const OfSide& s = at(side);
    const int64_t extent = side == Side::a ? p_.m.extent : p_.n.extent;
    for (int64_t round = 0; round < s.rounds; ++round) {
      const Expr number = min(lane + round * product_.tile().lanes(), b_.i64(s.count - 1));
      const Expr line = min(first_[side == Side::a ? 0 : 1] + number * s.shared, b_.i64(extent - 1));
      out.push_back(read(side, line, k));
    }
  }
  return out;
}

void BlockScales::put(Expr lane, const std::vector<Expr>& fetched, Expr place) {
  size_t next = 0;
  for (const Side side : kSides) {
    const OfSide& s = at(side);
    for (int64_t round = 0; round < s.rounds; ++round) {
      const Expr number = lane + round * product_.tile().lanes(), x = fetched[next++];
      const int64_t left = s.count - round * product_.tile().lanes();
      w_.where(left >= product_.tile().lanes() ? Expr{} : number < s.count,
               [&] { b_.store(s.buffer, x, (place * s.count + number) * 4, 4); });
    }
  }
}

void BlockScales::hold(const std::vector<Expr>& fetched) {
  size_t next = 0;
  for (const Side side : kSides)
    for (const BufferId h : at(side).held) b_.store(h, fetched[next++], b_.i64(0), 4);
}

std::vector<Expr> BlockScales::held() {
  std::vector<Expr> out;
  for (const Side side : kSides)
    for (const BufferId h : at(side).held) out.push_back(b_.load(h, {Scalar::f32, 1}, b_.i64(0), 4));
  return out;
}

std::vector<Expr> BlockScales::of(Side side, Expr lane, Expr place) {
  std::vector<Expr> out;
  const OfSide& s = at(side);
  const int lines = product_.lines(side), beside = product_.lines_beside(side);
  for (int number = 0; s.count > 0 && number < lines; ++number) {
    if (s.count == 1 && number > 0) {
      out.push_back(out[0]);
      continue;
    }
    if (s.shared == 1) {  // several neighbours at once
      if (number % beside > 0) continue;
      const Expr byte = (place * s.count + product_.line(side, lane, number)) * 4;
      const Expr run =
          b_.load(s.buffer, {Scalar::f32, beside}, byte, std::min<int64_t>(4 * beside, BlockProduct::kUnit));
      for (int i = 0; i < beside; ++i) out.push_back(beside == 1 ? run : b_.extract(run, i));
      continue;
    }
    const Expr entry = s.count == 1 ? b_.i64(0) : product_.line(side, lane, number) / s.shared;
    out.push_back(b_.load(s.buffer, {Scalar::f32, 1}, (place * s.count + entry) * 4, 4));
  }
  return out;
}

BlockProduct::Scales BlockScales::of(Expr lane, Expr place) {
  return {of(Side::a, lane, place), of(Side::b, lane, place)};
}

}  // namespace lumen::synth
