// Copies and unpacks rows; the butterfly transpose.
#include "kernel/synth/gemm/pack.h"

#include <numeric>

#include "base/check.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

using Value = loop::ValueId;

constexpr int64_t kMostUnrolled = 1024;  // elements unpacked by straight code

// The run of `blocks` blocks from block `first`, stored at byte `to` of the panel.
void unpack_run(DotWriter& w, Unpack& unpack, Value first, int64_t blocks, loop::BufferId buffer, Value to, int lanes) {
  const int64_t block = unpack.format().block;
  unpack.enter_block(first, blocks);
  for (int64_t position = 0; position < blocks * block;) {
    const int step = static_cast<int>(std::min<int64_t>(lanes, blocks * block - position));
    w.b.store(buffer, unpack.values(position, step), w.add(to, w.i64(position * 4)), 4);
    position += step;
  }
}

void unpack_rows(DotWriter& w, const DotLoad& load, const RowSource& from, Value rows, Value columns, const Panel& to,
                 int lanes) {
  const Format& f = *load.format;
  loop::Builder& b = w.b;
  Unpack unpack(b, f, w.buffer(from.load), load.rows, load.columns);
  unpack.enter_tensor();
  const int64_t unit = unpack_unit(f, lanes);
  b.loop(loop::LoopKind::serial, w.i64(0), rows, 1, [&](Value r) {
    const Value element = w.add(from.first, w.scaled(r, from.row_stride));
    unpack.enter_row(b.op(ScalarOp::div_, element, w.i64(load.columns)));
    const Value first = b.op(ScalarOp::div_, element, w.i64(f.block));
    const Value out = w.add(to.start, w.scaled(r, to.row_bytes));
    const Value whole = w.scaled(b.op(ScalarOp::div_, columns, w.i64(unit)), unit);
    auto run = [&](Value c, int64_t count) {
      const Value block = w.add(first, b.op(ScalarOp::div_, c, w.i64(f.block)));
      unpack_run(w, unpack, block, count / f.block, to.buffer, w.add(out, w.scaled(c, 4)), lanes);
    };
    b.loop(loop::LoopKind::serial, w.i64(0), whole, unit, [&](Value c) { run(c, unit); });
    if (unit > f.block) b.loop(loop::LoopKind::serial, whole, columns, f.block, [&](Value c) { run(c, f.block); });
  });
}

}  // namespace

int64_t unpack_unit(const Format& f, int lanes) {
  const int64_t unit = std::lcm(f.block, static_cast<int64_t>(lanes));
  if (unit > kMostUnrolled) return f.block;
  return unit >= 4 * lanes ? unit : unit * ((4 * lanes) / unit);
}

void copy_rows(DotWriter& w, const DotProblem& p, const RowSource& from, Value rows, Value columns, const Panel& to,
               int lanes) {
  const DotLoad& load = p.loads[from.load];
  if (load.kind == DotLoad::Kind::packed) return unpack_rows(w, load, from, rows, columns, to, lanes);
  loop::Builder& b = w.b;
  const Value whole = w.scaled(b.op(ScalarOp::div_, columns, w.i64(lanes)), lanes);
  b.loop(loop::LoopKind::serial, w.i64(0), rows, 1, [&](Value r) {
    const Value in = w.add(from.first, w.scaled(r, from.row_stride));
    const Value out = w.add(to.start, w.scaled(r, to.row_bytes));
    b.loop(loop::LoopKind::serial, w.i64(0), whole, lanes, [&](Value c) {
      b.store(to.buffer, w.read_f32(from.load, w.add(in, c), 1, lanes, -1), w.add(out, w.scaled(c, 4)), 4);
    });
    b.branch(b.op(ScalarOp::lt_, whole, columns), [&] {
      const Value count = b.op(ScalarOp::sub_, columns, whole);
      b.store(to.buffer, w.read_f32(from.load, w.add(in, whole), 1, lanes, count), w.add(out, w.scaled(whole, 4)), 4,
              count);
    });
  });
}

// Butterflies: at distance d, lanes whose number has bit d change places with the row d further.
std::vector<Value> transposed(loop::Builder& b, std::vector<Value> rows) {
  const int n = static_cast<int>(rows.size());
  LUMEN_CHECK(n > 0 && (n & (n - 1)) == 0 && b.type(rows[0]).lanes == n, "{} rows", n);
  for (int d = n / 2; d >= 1; d /= 2) {
    std::vector<Value> next = rows;
    for (int i = 0; i < n; ++i) {
      if (i & d) continue;
      std::vector<int> low, high;
      for (int lane = 0; lane < n; ++lane) {
        low.push_back(lane & d ? n + (lane ^ d) : lane);
        high.push_back(lane & d ? n + lane : lane | d);
      }
      next[i] = b.shuffle({rows[i], rows[i + d]}, low);
      next[i + d] = b.shuffle({rows[i], rows[i + d]}, high);
    }
    rows = std::move(next);
  }
  return rows;
}

}  // namespace lumen::synth
