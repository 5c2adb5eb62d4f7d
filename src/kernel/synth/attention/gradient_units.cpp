// Panels for a matrix unit. Sources become first factors unchanged (sums over keys) or transposed (sums over rows).
#include <algorithm>

#include "kernel/synth/attention/gradient_panels.h"
#include "kernel/synth/attention/unit_tiles.h"

namespace lumen::synth {

namespace {

constexpr int64_t kUnit = UnitTiles::kUnit, kStep = UnitTiles::kStep, kTile = UnitTiles::kTile, kRow = UnitTiles::kRow;

class UnitPanels : public GradientPanels {
 public:
  UnitPanels(Builder& b, std::unique_ptr<UnitTiles> tiles) : b_(b), tiles_(std::move(tiles)) {}

  int64_t rows_together() const override { return kStep; }
  int64_t keys_together() const override { return kStep; }
  int64_t most_rows() const override { return 64; }
  int64_t padded(int64_t width) const override { return round_up(width, kStep); }
  std::string describe() const override { return tiles_->row(); }

  void begin() override {
    sums_.resize(parts_->results.size(), -1);
    for (const GradientOperand& o : parts_->operands) {
      Panels mine;
      mine.lines = tiles_->alloc_factor(lines_of(o), padded(o.width));
      if (o.meets_keys) mine.transposed = tiles_->alloc_factor(lines_of(o), padded(o.width));
      if (o.is_summed) mine.pairs = tiles_->alloc_factor(lines_of(o), padded(o.width));
      operands_.push_back(mine);
    }
    for (size_t r = 0; r < parts_->results.size(); ++r)
      if (!result(r).over_keys) sums_[r] = tiles_->alloc_sums(parts_->block, sum_width(r));
    for (size_t k = 0; k < std::max(parts_->products.size(), parts_->sources); ++k)
      squares_.push_back(tiles_->alloc_sums(parts_->tile, parts_->block));
    for (size_t k = 0; k < parts_->sources; ++k) {
      Source s;
      for (const GradientResult& r : parts_->results) {
        if (r.source != std::ssize(sources_)) continue;
        BufferId& to = r.over_keys ? s.lines : s.transposed;
        if (to < 0) to = tiles_->alloc_factor(parts_->tile, parts_->block);
      }
      sources_.push_back(s);
    }
  }

  void clear_line(int number, Expr line) override {
    const int64_t width = operand(number).width;
    if (padded(width) != width) tiles_->clear(operands_[number].lines, padded(width), line, padded(width) - kStep);
  }
  void put(int number, Expr line, Expr at, Expr numbers, Expr count) override {
    tiles_->put(operands_[number].lines, padded(operand(number).width), line, at, numbers, count);
  }
  void finish(int number, Expr count) override {
    const GradientOperand& o = operand(number);
    const Panels& p = operands_[number];
    const int64_t all = lines_of(o), width = padded(o.width);
    tiles_->clear_lines(p.lines, width, count, all);  // sums run over the padding, too
    if (p.transposed >= 0) tiles_->transpose_words(p.lines, all, width, p.transposed);
    if (p.pairs >= 0) tiles_->pair(p.lines, all, width, p.pairs);
  }

  Place square(size_t number, Expr row, Expr key) override {
    return {squares_[number], tiles_->sum_place(row, key, parts_->block)};
  }
  bool reads_beside() const override { return true; }

  void multiply(size_t k, Expr rows, Expr from, Expr to) override {
    const auto [of_rows, of_keys] = parts_->products[k];
    const int64_t steps = padded(operand(of_rows).width) / kStep, keys = parts_->block / kUnit;
    tiles_->multiply({squares_[k], b_.i64(0), keys * kTile, kTile}, {operands_[of_rows].lines, steps * kTile, kTile},
                     {operands_[of_keys].transposed, kTile, keys * kTile}, {b_.i64(0), tiles_->units(rows)},
                     {from / kStep * 2, tiles_->units(to)}, {b_.i64(0), b_.i64(steps)}, false);
  }

  // The padding of the computed numbers is zero from here on.
  void take_sources(Expr rows, Expr from, Expr to) override {
    const UnitTiles::Beside around = tiles_->beside(rows, {}, {from, to});
    const auto& [first, end] = around.steps;
    for (size_t s = 0; s < sources_.size(); ++s) {
      tiles_->clear(around, squares_[s], parts_->block);
      if (sources_[s].lines >= 0) tiles_->lay(squares_[s], parts_->block, around.all, first, end, sources_[s].lines);
      if (sources_[s].transposed >= 0)
        tiles_->lay_transposed(squares_[s], parts_->block, around.all, first, end, parts_->tile,
                               sources_[s].transposed);
    }
  }

  void clear_sums(size_t number) override {
    const bool over_keys = result(number).over_keys;
    const int64_t bytes = over_keys ? head_bytes(number) : parts_->block * sum_width(number) * 4;
    const Expr from = over_keys ? head_ * bytes : b_.i64(0);
    b_.loop(LoopKind::serial, b_.i64(0), b_.i64(bytes), kRow,
            [&](Expr at) { b_.store(sums_[number], b_.real(0, {Scalar::f32, kUnit}), from + at, kRow); });
  }
  Place sum(size_t number, Expr line, Expr column) override {
    const Expr at = tiles_->sum_place(line, column, sum_width(number));
    return {sums_[number], result(number).over_keys ? head_ * head_bytes(number) + at : at};
  }

  void add(size_t number, Expr first, Expr rows, Expr from, Expr to) override {
    const GradientResult& r = result(number);
    const Source& s = sources_[r.source];
    const int64_t columns = sum_width(number) / kUnit;
    const UnitTiles::Factor right{operands_[r.operand].pairs, kTile, columns * kTile};
    const UnitTiles::Range all{b_.i64(0), b_.i64(columns)};
    if (r.over_keys) {
      const Expr begin = head_ * head_bytes(number) + first / kUnit * (columns * kTile);
      tiles_->multiply({sums_[number], begin, columns * kTile, kTile}, {s.lines, parts_->block / kStep * kTile, kTile},
                       right, {b_.i64(0), tiles_->units(rows)}, all, {from / kStep, tiles_->units(to) / 2}, true);
    } else {
      tiles_->multiply({sums_[number], b_.i64(0), columns * kTile, kTile},
                       {s.transposed, parts_->tile / kStep * kTile, kTile}, right,
                       {from / kStep * 2, tiles_->units(to)}, all, {b_.i64(0), tiles_->units(rows) / 2}, true);
    }
  }

 private:
  struct Panels {
    BufferId lines = -1, transposed = -1, pairs = -1;
  };
  struct Source {
    BufferId lines = -1, transposed = -1;
  };
  int64_t lines_of(const GradientOperand& o) const { return o.by_key ? parts_->block : parts_->tile; }

  Builder& b_;
  std::unique_ptr<UnitTiles> tiles_;
  std::vector<Panels> operands_;
  std::vector<Source> sources_;
  std::vector<BufferId> squares_;
};

}  // namespace

std::unique_ptr<GradientPanels> unit_panels(Builder& b, const machine::Machine& target, Scalar factor) {
  auto tiles = UnitTiles::find(b, target, factor);
  return tiles ? std::make_unique<UnitPanels>(b, std::move(tiles)) : nullptr;
}

}  // namespace lumen::synth
