// See unit_tiles.h.
#include "kernel/synth/attention/unit_tiles.h"

#include "kernel/synth/order/pairs.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

constexpr int kPair = 2;  // 16-bit floats in a word

}  // namespace

UnitTiles::UnitTiles(Builder& b, const machine::Machine& target, const machine::TileRow& row)
    : b_(b), row_(row), round_pair_(round_pair_row(target, row.a, kUnit)) {}

std::unique_ptr<UnitTiles> UnitTiles::find(Builder& b, const machine::Machine& target, Scalar factor) {
  if (target.f32_lanes() != kUnit) return nullptr;
  for (const machine::TileRow& row : target.tiles) {
    const bool fits = row.rows == kUnit && row.columns == kUnit && row.k == kStep;
    if (fits && row.a == factor && row.b == factor && row.acc == Scalar::f32)
      return std::unique_ptr<UnitTiles>(new UnitTiles(b, target, row));
  }
  return nullptr;
}

void UnitTiles::serial(Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body) {
  b_.loop(loop::LoopKind::serial, from, to, step, body);
}

Expr UnitTiles::sum_place(Expr row, Expr column, int64_t columns) {
  const Expr tile = row / kUnit * (columns / kUnit) + column / kUnit;
  return tile * kTile + row % kUnit * kRow + column % kUnit * 4;
}

Expr UnitTiles::line_place(Expr line, Expr at, int64_t width) {
  const Expr tile = line / kUnit * (width / kStep) + at / kStep;
  return tile * kTile + line % kUnit * kRow + at % kStep * 2;
}

void UnitTiles::put(BufferId lines, int64_t width, Expr line, Expr at, Expr numbers, Expr count) {
  b_.store(lines, cast(numbers, row_.a), line_place(line, at, width), 2, count);
}

void UnitTiles::clear(BufferId lines, int64_t width, Expr line, int64_t at) {
  b_.store(lines, b_.real(0, {row_.a, kStep}), line_place(line, b_.i64(at), width), kRow);
}

void UnitTiles::clear_lines(BufferId lines, int64_t width, Expr from, int64_t to) {
  serial(from, b_.i64(to), 1, [&](Expr line) {
    for (int64_t at = 0; at < width; at += kStep) clear(lines, width, line, at);
  });
}

void UnitTiles::transpose_words(BufferId lines, int64_t count, int64_t width, BufferId to) {
  const int64_t units = count / kUnit, steps = width / kStep;
  const loop::VType vector{row_.a, kStep};
  serial(b_.i64(0), b_.i64(units), 1, [&](Expr unit) {
    serial(b_.i64(0), b_.i64(steps), 1, [&](Expr step) {
      const Expr from = (unit * steps + step) * kTile, there = (step * units + unit) * kTile;
      std::vector<Expr> rows;
      for (int64_t i = 0; i < kUnit; ++i) rows.push_back(b_.load(lines, vector, from + i * kRow, kRow));
      transpose(b_, rows, kPair);
      for (int64_t i = 0; i < kUnit; ++i) b_.store(to, rows[i], there + i * kRow, kRow);
    });
  });
}

void UnitTiles::pair(BufferId lines, int64_t count, int64_t width, BufferId to) {
  const loop::VType vector{row_.a, kStep};
  serial(b_.i64(0), b_.i64(count), kPair, [&](Expr line) {
    for (int64_t at = 0; at < width; at += kStep) {
      std::vector<Expr> two;
      for (int64_t i = 0; i < kPair; ++i)
        two.push_back(b_.load(lines, vector, line_place(line + i, b_.i64(at), width), kRow));
      for (int64_t half = 0; half < 2; ++half) {
        const Expr tile = line / kStep * (width / kUnit) + b_.i64(at / kUnit + half);
        const Expr both = b_.shuffle(two, by_turns(half * kUnit, kStep + half * kUnit, kUnit));
        b_.store(to, both, tile * kTile + line % kStep / kPair * kRow, kRow);
      }
    }
  });
}

// Two f32 vectors, rounded and concatenated.
Expr UnitTiles::round_pair(BufferId sums, Expr below, Expr above) {
  const loop::VType vector{Scalar::f32, kUnit};
  const Expr x = b_.load(sums, vector, below, kRow), y = b_.load(sums, vector, above, kRow);
  if (!round_pair_.empty()) return b_.inst(round_pair_, {row_.a, kStep}, {y, x});
  return b_.concat(cast(x, row_.a), cast(y, row_.a));
}

void UnitTiles::lay(BufferId sums, int64_t columns, Expr rows, Expr from, Expr to, BufferId to_lines) {
  serial(b_.i64(0), rows, 1, [&](Expr row) {
    serial(from, to, kStep, [&](Expr at) {
      const Expr both = round_pair(sums, sum_place(row, at, columns), sum_place(row, at + kUnit, columns));
      b_.store(to_lines, both, line_place(row, at, columns), kRow);
    });
  });
}

void UnitTiles::lay_transposed(BufferId sums, int64_t columns, Expr rows, Expr from, Expr to, int64_t all,
                               BufferId to_lines) {
  serial(b_.i64(0), rows, kStep, [&](Expr row) {
    serial(from, to, kUnit, [&](Expr at) {
      std::vector<Expr> words;
      for (int64_t i = 0; i < kStep; i += kPair) {
        const Expr two = round_pair(sums, sum_place(row + i, at, columns), sum_place(row + (i + 1), at, columns));
        words.push_back(b_.shuffle({two}, by_turns(0, kUnit, kUnit)));
      }
      transpose(b_, words, kPair);
      const Expr tile = at / kUnit * (all / kStep) + row / kStep;
      for (int64_t i = 0; i < kUnit; ++i) b_.store(to_lines, words[i], tile * kTile + i * kRow, kRow);
    });
  });
}

UnitTiles::Beside UnitTiles::beside(Expr rows, Expr all, const Range& known) {
  Beside out{known, {known.from - known.from % kStep, units(known.to) * kUnit}, rows, all, {}};
  if (!all.exists()) out.all = units(rows) * kUnit;
  const Expr behind = known.to + (kUnit - 1);
  out.stop = behind - behind % kUnit;
  return out;
}

void UnitTiles::clear(const Beside& beside, BufferId sums, int64_t columns) {
  const auto clear = [&](Expr row, Expr from, Expr to) {
    const Expr zero = b_.real(0, {Scalar::f32, kUnit});
    serial(from, to, kUnit, [&](Expr at) { b_.store(sums, zero, sum_place(row, at, columns), kRow); });
  };
  serial(b_.i64(0), beside.rows, 1, [&](Expr row) {
    clear(row, beside.steps.from, beside.known.from);
    clear(row, beside.stop, beside.steps.to);
  });
  serial(beside.rows, beside.all, 1, [&](Expr row) { clear(row, beside.steps.from, beside.steps.to); });
}

void UnitTiles::multiply(const Sums& c, const Factor& a, const Factor& v, const Range& rows, const Range& columns,
                         const Range& steps, bool adds) {
  const loop::VType sum{row_.acc, kUnit * kUnit}, factor{row_.a, kUnit * kStep};
  const auto begin = [&](const Factor& f) { return f.from.exists() ? f.from : b_.i64(0); };
  serial(rows.from, rows.to, 2, [&](Expr i) {
    serial(columns.from, columns.to, 2, [&](Expr j) {
      const Expr at = c.from + i * c.row + j * c.column;
      const auto place = [&](int64_t k) { return at + (k / 2 * c.row + k % 2 * c.column); };
      std::vector<BufferId> sums;
      for (int64_t k = 0; k < 4; ++k) {
        sums.push_back(b_.alloc(kTile, kRow));
        b_.store(sums[k], adds ? b_.load(c.buffer, sum, place(k), kRow) : b_.real(0, sum), b_.i64(0), kRow);
      }
      serial(steps.from, steps.to, 1, [&](Expr step) {
        std::vector<Expr> left;
        for (int64_t k = 0; k < 2; ++k)
          left.push_back(b_.load(a.buffer, factor, begin(a) + i * a.line + step * a.step + k * a.line, kRow));
        for (int64_t k = 0; k < 2; ++k) {
          const Expr right = b_.load(v.buffer, factor, begin(v) + j * v.line + step * v.step + k * v.line, kRow);
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

}  // namespace lumen::synth
