// Matrices that a CPU task keeps for its matrix unit: f32 in tiles that the unit adds to, factors in tiles of 16-bit
// floats that it loads directly. Rows of a first factor's tile are contiguous along the summed axis; a tile of the
// second factor has pairs along it for each column. Unchanged lines of numbers are first factors; with transposed
// words, they are second factors of products along a line; two interleaved lines are second factors of sums over lines.
// Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

class UnitTiles {
 public:
  static constexpr int64_t kUnit = 16;               // rows and columns of a tile
  static constexpr int64_t kStep = 32;               // numbers that one product sums; lines are multiples of it
  static constexpr int64_t kTile = 1024, kRow = 64;  // bytes, the alignment of everything here

  // Null if the machine has no such tiles for products of that type.
  static std::unique_ptr<UnitTiles> find(Builder& b, const machine::Machine& target, Scalar factor);

  const std::string& row() const { return row_.row; }
  BufferId alloc_sums(int64_t rows, int64_t columns) { return b_.alloc(rows * columns * 4, kRow); }
  BufferId alloc_factor(int64_t lines, int64_t width) { return b_.alloc(lines * width * 2, kRow); }

  // Byte offset of an f32 number; a tile's rows are contiguous.
  Expr sum_place(Expr row, Expr column, int64_t columns);
  // Stores numbers of a line from column `at` on, rounded; `count` of them (no value: all).
  void put(BufferId lines, int64_t width, Expr line, Expr at, Expr numbers, Expr count);
  // Zeroes kStep numbers of a line.
  void clear(BufferId lines, int64_t width, Expr line, int64_t at);
  void clear_lines(BufferId lines, int64_t width, Expr from, int64_t to);
  // Second factors of `count` lines, a multiple of kStep as their width is.
  void transpose_words(BufferId lines, int64_t count, int64_t width, BufferId to);
  void pair(BufferId lines, int64_t count, int64_t width, BufferId to);
  // First factors from f32 numbers of rows below `rows` and columns from .. to - 1, whole steps of both: unchanged, for
  // sums over columns; transposed, for sums over `all` rows.
  void lay(BufferId sums, int64_t columns, Expr rows, Expr from, Expr to, BufferId to_lines);
  void lay_transposed(BufferId sums, int64_t columns, Expr rows, Expr from, Expr to, int64_t all, BufferId to_lines);
  struct Range {
    Expr from, to;
  };
  // The computed f32 numbers are rows below `rows` in a range of columns that begins at a whole tile. Their padding is
  // the other columns of the whole steps around it, and rows up to `all` (no value: of whole steps).
  struct Beside {
    Range known, steps;
    Expr rows, all, stop;
  };
  Beside beside(Expr rows, Expr all, const Range& known);
  void clear(const Beside& beside, BufferId sums, int64_t columns);

  // Tiles up to a number of lines, two at a time.
  Expr units(Expr lines) { return (lines + (kStep - 1)) / kStep * 2; }

  // Tiles of c (+)= a b, two by two: c's by row and column, a's by row and step, b's by column and step.
  struct Sums {
    BufferId buffer;
    Expr from;
    int64_t row, column;  // bytes
  };
  struct Factor {
    BufferId buffer;
    int64_t line, step;  // bytes
    Expr from = {};      // no value: 0
  };
  void multiply(const Sums& c, const Factor& a, const Factor& v, const Range& rows, const Range& columns,
                const Range& steps, bool adds);

 private:
  UnitTiles(Builder& b, const machine::Machine& target, const machine::TileRow& row);
  void serial(Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body);
  Expr line_place(Expr line, Expr at, int64_t width);
  Expr round_pair(BufferId sums, Expr below, Expr above);

  Builder& b_;
  const machine::TileRow row_;
  std::string round_pair_;  // the machine's row that rounds two vectors at once
};

}  // namespace lumen::synth
