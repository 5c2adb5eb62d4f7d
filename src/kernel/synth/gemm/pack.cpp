// Copies and unpacks rows.
#include "kernel/synth/gemm/pack.h"

#include <numeric>

#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

constexpr int64_t kMostUnrolled = 1024;  // elements unpacked by straight-line code

// Unpacks `blocks` blocks from block `first` on, to byte `to` of the panel.
void unpack_run(DotWriter& w, Unpack& unpack, Expr first, int64_t blocks, BufferId buffer, Expr to, int lanes) {
  const int64_t block = unpack.format().block;
  unpack.enter_block(first, blocks);
  for (int64_t position = 0; position < blocks * block;) {
    const int step = std::min<int64_t>(lanes, blocks * block - position);
    w.b.store(buffer, unpack.values(position, step), to + position * 4, 4);
    position += step;
  }
}

void unpack_rows(DotWriter& w, const DotLoad& load, const RowSource& from, Expr rows, Expr columns, const Panel& to,
                 int lanes) {
  const Format& f = *load.format;
  Builder& b = w.b;
  Unpack unpack(b, f, w.buffer(from.load), load.rows, load.columns);
  unpack.enter_tensor();
  const int64_t unit = unpack_unit(f, lanes);
  b.loop(LoopKind::serial, w.i64(0), rows, 1, [&](Expr r) {
    const Expr element = from.first + r * from.row_stride;
    unpack.enter_row(element / load.columns);
    const Expr first = element / f.block;
    const Expr out = to.start + r * to.row_bytes;
    const Expr whole = columns / unit * unit;
    auto run = [&](Expr c, int64_t count) {
      const Expr block = first + c / f.block;
      unpack_run(w, unpack, block, count / f.block, to.buffer, out + c * 4, lanes);
    };
    b.loop(LoopKind::serial, w.i64(0), whole, unit, [&](Expr c) { run(c, unit); });
    if (unit > f.block) b.loop(LoopKind::serial, whole, columns, f.block, [&](Expr c) { run(c, f.block); });
  });
}

}  // namespace

int64_t unpack_unit(const Format& f, int lanes) {
  const int64_t unit = std::lcm(f.block, static_cast<int64_t>(lanes));
  if (unit > kMostUnrolled) return f.block;
  return unit >= 4 * lanes ? unit : unit * ((4 * lanes) / unit);
}

void copy_rows(DotWriter& w, const DotProblem& p, const RowSource& from, Expr rows, Expr columns, const Panel& to,
               int lanes) {
  const DotLoad& load = p.loads[from.load];
  if (load.kind == DotLoad::Kind::packed) return unpack_rows(w, load, from, rows, columns, to, lanes);
  Builder& b = w.b;
  const Expr whole = columns / lanes * lanes;
  b.loop(LoopKind::serial, w.i64(0), rows, 1, [&](Expr r) {
    const Expr in = from.first + r * from.row_stride;
    const Expr out = to.start + r * to.row_bytes;
    b.loop(LoopKind::serial, w.i64(0), whole, lanes,
           [&](Expr c) { b.store(to.buffer, w.read_factor(from.load, in + c, 1, lanes, {}), out + c * 4, 4); });
    b.branch(whole < columns, [&] {
      const Expr count = columns - whole;
      b.store(to.buffer, w.read_factor(from.load, in + whole, 1, lanes, count), out + whole * 4, 4, count);
    });
  });
}

}  // namespace lumen::synth
