// Products of panels of whole rows, step by step of k. See block_product.h.
#include "base/check.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

void BlockProduct::hold_steps() {
  for (int64_t step = 0; step < 2; ++step)
    for (const Side side : {Side::a, Side::b}) {
      const auto& holding = factor(side).holding;
      const int64_t bytes = std::ssize(holding.column_parts) * together_ * scalar_bytes(tile_.factor);
      for (size_t i = 0; i < tile_.tiles(side) * holding.row_parts.size(); ++i) held_.push_back(b_.alloc(bytes, kUnit));
    }
}

BufferId BlockProduct::held(Side side, int tile, size_t part, int64_t step) const {
  const auto count = [&](Side s) { return tile_.tiles(s) * factor(s).holding.row_parts.size(); };
  const size_t before = step % 2 * (count(Side::a) + count(Side::b)) + (side == Side::b ? count(Side::a) : 0);
  return held_[before + tile * factor(side).holding.row_parts.size() + part];
}

void BlockProduct::read_step(Expr lane, Panel a, Panel b, int64_t step) {
  LUMEN_CHECK(tile_.whole_rows && !held_.empty() && partial_.empty());
  for (const auto& [side, panel] : {std::pair{Side::a, a}, {Side::b, b}}) {
    const Shares from = shares(side, lane, panel, step);
    for (int tile = 0; tile < tile_.tiles(side); ++tile) {
      const Runs runs = fetch(factor(side), from, int64_t{tile} * tile_.step(side));
      for (size_t part = 0; part < runs.size(); ++part)
        b_.store(held(side, tile, part, step), runs[part], b_.i64(0), kUnit);
    }
  }
}

void BlockProduct::multiply_step(int64_t step) {
  const auto runs = [&](Side side, int tile) {
    const auto& holding = factor(side).holding;
    const VType type{tile_.factor, static_cast<int>(holding.column_parts.size() * together_)};
    Runs out;
    for (size_t part = 0; part < holding.row_parts.size(); ++part)
      out.push_back(b_.load(held(side, tile, part, step), type, b_.i64(0), kUnit));
    return out;
  };
  std::vector<Runs> left, right;
  for (int i = 0; i < tile_.tiles_m; ++i) left.push_back(runs(Side::a, i));
  for (int j = 0; j < tile_.tiles_n; ++j) right.push_back(runs(Side::b, j));
  for (int64_t s = 0; s < together_; ++s)
    for (int i = 0; i < tile_.tiles_m; ++i)
      for (int j = 0; j < tile_.tiles_n; ++j) add_products(i, j, s, left[i], right[j]);
}

}  // namespace lumen::synth
