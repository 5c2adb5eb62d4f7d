// Panels for a matrix unit: factors are 16-bit floats in tiles that it loads as they lie, sums f32 in tiles of its own.
// A tile of the first factor is rows of neighbours along what is summed; one of the second has pairs of them for each
// column. So lines of an operand, as they come, are first factors; their words turned are second factors of scores; two
// lines by turns are second factors of what is summed over lines. Sources become first factors as they lie (sums over
// keys) or two rows by turns, turned (sums over rows).
#include <algorithm>

#include "kernel/synth/attention/gradient_panels.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

constexpr int64_t kUnit = 16;  // rows and columns of a tile
constexpr int64_t kStep = 32;  // numbers along a sum of one product; and lines that come two tiles at a time
constexpr int64_t kTile = 1024, kRow = 64;  // bytes
constexpr int kPair = 2;                    // of 16-bit floats, in a word

class UnitPanels : public GradientPanels {
 public:
  UnitPanels(Builder& b, const machine::Machine& target, const machine::TileRow& row)
      : b_(b), row_(row), lanes_(target.f32_lanes()) {
    const std::string pair = fmt::format("roundpair.f32f32.{}x{}", scalar_name(row.a), 2 * lanes_);
    if (target.find_row(pair)) round_pair_ = pair;
  }

  int64_t rows_together() const override { return kStep; }
  int64_t keys_together() const override { return kStep; }
  int64_t most_rows() const override { return 64; }
  int64_t padded(int64_t width) const override { return round_up(width, kStep); }
  std::string describe() const override { return row_.row; }

  void begin() override {
    sums_.resize(parts_->results.size(), -1);
    for (const GradientOperand& o : parts_->operands) {
      const int64_t bytes = lines_of(o) * padded(o.width) * 2;
      Panels mine;
      mine.lines = b_.alloc(bytes, kRow);
      if (o.meets_keys) mine.turned = b_.alloc(bytes, kRow);
      if (o.is_summed) mine.pairs = b_.alloc(bytes, kRow);
      operands_.push_back(mine);
    }
    for (size_t r = 0; r < parts_->results.size(); ++r)
      if (!result(r).over_keys) sums_[r] = b_.alloc(parts_->block * sum_width(r) * 4, kRow);
    for (size_t k = 0; k < std::max(parts_->products.size(), parts_->sources); ++k)
      squares_.push_back(b_.alloc(parts_->tile * parts_->block * 4, kRow));
    for (size_t k = 0; k < parts_->sources; ++k) {
      Source s;
      for (const GradientResult& r : parts_->results) {
        if (r.source != std::ssize(sources_)) continue;
        BufferId& to = r.over_keys ? s.lines : s.turned;
        if (to < 0) to = b_.alloc(parts_->tile * parts_->block * 2, kRow);
      }
      sources_.push_back(s);
    }
  }

  void clear_line(int number, Expr line) override {
    const int64_t width = operand(number).width;
    if (padded(width) != width) store_zero(number, line, padded(width) - kStep);
  }
  void put(int number, Expr line, Expr at, Expr numbers, Expr count) override {
    b_.store(operands_[number].lines, cast(numbers, row_.a), line_place(number, line, at), 2, count);
  }
  void finish(int number, Expr count) override {
    const GradientOperand& o = operand(number);
    const int64_t all = lines_of(o), width = padded(o.width), steps = width / kStep;
    serial(count, b_.i64(all), 1, [&](Expr line) {  // what is summed beyond the last line is zero
      for (int64_t at = 0; at < width; at += kStep) store_zero(number, line, at);
    });
    const Panels& p = operands_[number];
    if (p.turned >= 0)
      each(all / kUnit, steps, [&](Expr unit, Expr step) {
        turn(p.lines, (unit * steps + step) * kTile, p.turned, (step * (all / kUnit) + unit) * kTile);
      });
    if (p.pairs < 0) return;
    serial(b_.i64(0), b_.i64(all), kPair, [&](Expr line) {
      for (int64_t at = 0; at < width; at += kStep) {
        std::vector<Expr> two;
        for (int64_t i = 0; i < kPair; ++i)
          two.push_back(b_.load(p.lines, {row_.a, kStep}, line_place(number, line + i, b_.i64(at)), kRow));
        for (int64_t half = 0; half < 2; ++half) {
          const Expr tile = line / kStep * (width / kUnit) + b_.i64(at / kUnit + half);
          b_.store(p.pairs, b_.shuffle(two, alternate(half)), tile * kTile + line % kStep / kPair * kRow, kRow);
        }
      }
    });
  }

  Place square(size_t number, Expr row, Expr key) override {
    return {squares_[number], tile_place(row, key, parts_->block)};
  }
  bool reads_beside() const override { return true; }

  void multiply(size_t k, Expr rows, Expr from, Expr to) override {
    const auto [of_rows, of_keys] = parts_->products[k];
    const int64_t steps = padded(operand(of_rows).width) / kStep, keys = parts_->block / kUnit;
    multiply({squares_[k], b_.i64(0), keys * kTile, kTile}, {operands_[of_rows].lines, steps * kTile, kTile},
             {operands_[of_keys].turned, kTile, keys * kTile}, {b_.i64(0), units(rows)}, {from / kStep * 2, units(to)},
             {b_.i64(0), b_.i64(steps)}, false);
  }

  // Numbers beside those that were computed are zeros from here on.
  void take_sources(Expr rows, Expr from, Expr to) override {
    const Expr first = from - from % kStep, end = units(to) * kUnit, all = units(rows) * kUnit;
    const VType vector{Scalar::f32, lanes_};
    for (size_t s = 0; s < sources_.size(); ++s) {
      const auto clear = [&](Expr row, Expr begin, Expr stop) {
        serial(begin, stop, lanes_, [&](Expr key) {
          const Place at = square(s, row, key);
          b_.store(at.buffer, b_.real(0, vector), at.byte, kRow);
        });
      };
      serial(b_.i64(0), rows, 1, [&](Expr row) {
        clear(row, first, from);
        clear(row, to + (lanes_ - 1) - (to + (lanes_ - 1)) % lanes_, end);
      });
      serial(rows, all, 1, [&](Expr row) { clear(row, first, end); });
      if (sources_[s].lines >= 0) lay_lines(s, all, first, end);
      if (sources_[s].turned >= 0) lay_turned(s, all, first, end);
    }
  }

  int64_t head_bytes(size_t number) const override { return parts_->tiles * parts_->tile * sum_width(number) * 4; }
  void set_scratch(size_t number, BufferId scratch) override {
    sums_.resize(std::max(sums_.size(), number + 1), -1);
    sums_[number] = scratch;
  }
  void enter_head(Expr head) override { head_ = head; }
  void clear_sums(size_t number) override {
    const bool over_keys = result(number).over_keys;
    const int64_t bytes = over_keys ? head_bytes(number) : parts_->block * sum_width(number) * 4;
    const Expr from = over_keys ? head_ * bytes : b_.i64(0);
    const VType vector{Scalar::f32, lanes_};
    serial(b_.i64(0), b_.i64(bytes), lanes_ * int64_t{4},
           [&](Expr at) { b_.store(sums_[number], b_.real(0, vector), from + at, kRow); });
  }
  Place sum(size_t number, Expr line, Expr column) override {
    const Expr at = tile_place(line, column, sum_width(number));
    return {sums_[number], result(number).over_keys ? head_ * head_bytes(number) + at : at};
  }

  void add(size_t number, Expr first, Expr rows, Expr from, Expr to) override {
    const GradientResult& r = result(number);
    const Source& s = sources_[r.source];
    const int64_t columns = sum_width(number) / kUnit;
    const Factor right{operands_[r.operand].pairs, kTile, columns * kTile};
    const Range all{b_.i64(0), b_.i64(columns)};
    if (r.over_keys) {
      const Expr begin = head_ * head_bytes(number) + first / kUnit * (columns * kTile);
      multiply({sums_[number], begin, columns * kTile, kTile}, {s.lines, parts_->block / kStep * kTile, kTile}, right,
               {b_.i64(0), units(rows)}, all, {from / kStep, units(to) / 2}, true);
    } else {
      multiply({sums_[number], b_.i64(0), columns * kTile, kTile}, {s.turned, parts_->tile / kStep * kTile, kTile},
               right, {from / kStep * 2, units(to)}, all, {b_.i64(0), units(rows) / 2}, true);
    }
  }

 private:
  struct Panels {
    BufferId lines = -1, turned = -1, pairs = -1;
  };
  struct Source {
    BufferId lines = -1, turned = -1;
  };
  int64_t lines_of(const GradientOperand& o) const { return o.by_key ? parts_->block : parts_->tile; }
  // Tiles up to a number of lines, two at a time.
  Expr units(Expr lines) { return (lines + (kStep - 1)) / kStep * 2; }
  void serial(Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body) {
    b_.loop(LoopKind::serial, from, to, step, body);
  }
  void each(int64_t rows, int64_t columns, const std::function<void(Expr, Expr)>& body) {
    serial(b_.i64(0), b_.i64(rows), 1,
           [&](Expr row) { serial(b_.i64(0), b_.i64(columns), 1, [&](Expr column) { body(row, column); }); });
  }

  // Byte of an f32 number in tiles that lie row by row; neighbours of a tile's row lie together.
  Expr tile_place(Expr row, Expr column, int64_t columns) {
    const Expr tile = row / kUnit * (columns / kUnit) + column / kUnit;
    return tile * kTile + row % kUnit * kRow + column % kUnit * 4;
  }
  Expr line_place(int number, Expr line, Expr at) {
    const Expr tile = line / kUnit * (padded(operand(number).width) / kStep) + at / kStep;
    return tile * kTile + line % kUnit * kRow + at % kStep * 2;
  }
  void store_zero(int number, Expr line, int64_t at) {
    b_.store(operands_[number].lines, b_.real(0, {row_.a, kStep}), line_place(number, line, b_.i64(at)), kRow);
  }

  // A tile of words, its rows and columns changed.
  void turn(BufferId from, Expr from_byte, BufferId to, Expr to_byte) {
    std::vector<Expr> rows;
    for (int64_t i = 0; i < kUnit; ++i) rows.push_back(b_.load(from, {row_.a, kStep}, from_byte + i * kRow, kRow));
    transpose(b_, rows, kPair);
    for (int64_t i = 0; i < kUnit; ++i) b_.store(to, rows[i], to_byte + i * kRow, kRow);
  }
  // Numbers of two vectors of kStep by turns: of their first or their second half.
  static std::vector<int> alternate(int half) {
    std::vector<int> mask;
    for (int i = 0; i < kUnit; ++i) {
      mask.push_back(half * kUnit + i);
      mask.push_back(kStep + half * kUnit + i);
    }
    return mask;
  }
  // Two vectors of f32, one behind the other, rounded.
  Expr round_pair(const Place& below, const Place& above) {
    const VType vector{Scalar::f32, lanes_};
    const Expr x = b_.load(below.buffer, vector, below.byte, kRow), y = b_.load(above.buffer, vector, above.byte, kRow);
    if (!round_pair_.empty()) return b_.inst(round_pair_, {row_.a, kStep}, {y, x});
    return b_.concat(cast(x, row_.a), cast(y, row_.a));
  }

  void lay_lines(size_t s, Expr rows, Expr first, Expr end) {
    const int64_t steps = parts_->block / kStep;
    serial(b_.i64(0), rows, 1, [&](Expr row) {
      serial(first, end, kStep, [&](Expr key) {
        const Expr both = round_pair(square(s, row, key), square(s, row, key + kUnit));
        const Expr tile = row / kUnit * steps + key / kStep;
        b_.store(sources_[s].lines, both, tile * kTile + row % kUnit * kRow, kRow);
      });
    });
  }
  void lay_turned(size_t s, Expr rows, Expr first, Expr end) {
    const int64_t steps = parts_->tile / kStep;
    std::vector<int> by_turns;
    for (int i = 0; i < kUnit; ++i) {
      by_turns.push_back(i);
      by_turns.push_back(static_cast<int>(kUnit) + i);
    }
    serial(b_.i64(0), rows, kStep, [&](Expr row) {
      serial(first, end, kUnit, [&](Expr key) {
        std::vector<Expr> words;
        for (int64_t i = 0; i < kStep; i += kPair)
          words.push_back(b_.shuffle({round_pair(square(s, row + i, key), square(s, row + (i + 1), key))}, by_turns));
        transpose(b_, words, kPair);
        const Expr tile = key / kUnit * steps + row / kStep;
        for (int64_t i = 0; i < kUnit; ++i) b_.store(sources_[s].turned, words[i], tile * kTile + i * kRow, kRow);
      });
    });
  }

  // Tiles of c (+)= a b, two by two: c's by row and column, a's by row and step, b's by column and step.
  struct Sums {
    BufferId buffer;
    Expr from;
    int64_t row, column;  // bytes
  };
  struct Factor {
    BufferId buffer;
    int64_t line, step;  // bytes
  };
  struct Range {
    Expr from, to;
  };
  void multiply(const Sums& c, const Factor& a, const Factor& v, const Range& rows, const Range& columns,
                const Range& steps, bool adds) {
    const VType sum{row_.acc, kUnit * kUnit}, factor{row_.a, kUnit * kStep};
    const VType zero = sum;
    serial(rows.from, rows.to, 2, [&](Expr i) {
      serial(columns.from, columns.to, 2, [&](Expr j) {
        const Expr at = c.from + i * c.row + j * c.column;
        const auto place = [&](int64_t k) { return at + (k / 2 * c.row + k % 2 * c.column); };
        std::vector<BufferId> sums;
        for (int64_t k = 0; k < 4; ++k) {
          sums.push_back(b_.alloc(kTile, kRow));
          b_.store(sums[k], adds ? b_.load(c.buffer, sum, place(k), kRow) : b_.real(0, zero), b_.i64(0), kRow);
        }
        serial(steps.from, steps.to, 1, [&](Expr step) {
          std::vector<Expr> left;
          for (int64_t k = 0; k < 2; ++k)
            left.push_back(b_.load(a.buffer, factor, i * a.line + step * a.step + k * a.line, kRow));
          for (int64_t k = 0; k < 2; ++k) {
            const Expr right = b_.load(v.buffer, factor, j * v.line + step * v.step + k * v.line, kRow);
            for (int64_t l = 0; l < 2; ++l) {
              const BufferId s = sums[2 * l + k];
              b_.store(s, b_.inst(row_.row, sum, {b_.load(s, sum, b_.i64(0), kRow), left[l], right}), b_.i64(0), kRow);
            }
          }
        });
        for (int64_t k = 0; k < 4; ++k) b_.store(c.buffer, b_.load(sums[k], sum, b_.i64(0), kRow), place(k), kRow);
      });
    });
  }

  Builder& b_;
  const machine::TileRow row_;
  int lanes_;
  std::string round_pair_;
  std::vector<Panels> operands_;
  std::vector<Source> sources_;
  std::vector<BufferId> squares_, sums_;
  Expr head_;
};

}  // namespace

std::unique_ptr<GradientPanels> unit_panels(Builder& b, const machine::Machine& target, Scalar factor) {
  if (target.f32_lanes() != kUnit) return nullptr;
  for (const machine::TileRow& row : target.tiles) {
    const bool fits = row.rows == kUnit && row.columns == kUnit && row.k == kStep;
    if (fits && row.a == factor && row.b == factor && row.acc == Scalar::f32)
      return std::make_unique<UnitPanels>(b, target, row);
  }
  return nullptr;
}

}  // namespace lumen::synth
