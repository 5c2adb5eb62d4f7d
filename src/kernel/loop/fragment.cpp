// See fragment.h. Proved by tests/kernel/machine/machine_matrix_test.cpp.
#include "kernel/loop/fragment.h"

namespace lumen::loop {

Fragment fragment(int bits, int per_lane, const std::vector<Digit>& row, const std::vector<Digit>& column) {
  Fragment f;
  f.bits = bits;
  f.lane_bits = bits * per_lane;
  LayoutPiece piece;
  piece.bits = bits;
  const auto add = [&](const std::vector<Digit>& digits) {
    int extent = 1;
    for (const Digit& d : digits) {
      piece.modes.push_back({d.extent, int64_t{d.lanes} * f.lane_bits + int64_t{d.elements} * bits});
      extent *= d.extent;
    }
    return extent;
  };
  f.rows = add(row);
  f.columns = add(column);
  piece.count = int64_t{f.rows} * f.columns;
  f.layout.pieces.push_back(std::move(piece));
  return f;
}

namespace {

Fragment in_memory(int bits, int rows, int columns, int swizzle, std::vector<LayoutMode> modes) {
  return {.rows = rows,
          .columns = columns,
          .bits = bits,
          .layout = {{{0, int64_t{rows} * columns, 0, bits, 0, std::move(modes)}}},
          .swizzle = swizzle};
}

}  // namespace

Fragment shared_fragment(int bits, int rows, int columns, int64_t row_bytes, int swizzle) {
  return in_memory(bits, rows, columns, swizzle, {{rows, row_bytes * 8}, {columns, bits}});
}

Fragment transposed_fragment(int bits, int rows, int columns, int64_t run_bytes, int64_t next_bytes, int swizzle) {
  const int run = run_bytes * 8 / bits;
  return in_memory(bits, rows, columns, swizzle, {{rows / run, next_bytes * 8}, {run, bits}, {columns, run_bytes * 8}});
}

}  // namespace lumen::loop
