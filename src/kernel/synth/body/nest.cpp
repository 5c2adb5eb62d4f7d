#include "kernel/synth/body/nest.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/round_up.h"

namespace lumen::synth {

Tasks cut(const std::vector<int64_t>& outer, int64_t inner, int64_t grain, int64_t unit, bool may_split_inner) {
  Tasks t;
  t.rows = product(outer);
  t.part = inner;
  if (may_split_inner && inner >= 2 * grain) {
    t.part = round_up(grain, unit);
    t.parts = (inner + t.part - 1) / t.part;
  } else {
    t.rows_per_task = std::clamp<int64_t>(grain / std::max<int64_t>(inner, 1), 1, std::max<int64_t>(t.rows, 1));
  }
  return t;
}

std::vector<Expr> digits(Builder& b, Expr number, const std::vector<int64_t>& extents) {
  std::vector<Expr> out(extents.size());
  Expr rest = number;
  for (size_t d = extents.size(); d-- > 0;) {
    out[d] = d == 0 ? rest : rest % extents[d];
    if (d != 0) rest = rest / extents[d];
  }
  return out;
}

namespace {
constexpr int64_t kBlockThreads = 256;  // with adjacent tasks
}

// Measured: a thread with one load of sixteen bytes ends before the next one can start.
int64_t tasks_beside(const Tasks& tasks, double bytes, const machine::Machine& m) {
  constexpr double kThreadBytes = 64;
  constexpr int64_t kMost = 4, kBlocks = 4;  // of a multiprocessor
  int64_t beside = 1;
  const auto more = [&](int64_t n) {
    const int64_t block = kBlockThreads * n;
    return n <= kMost && tasks.count() % block == 0 && tasks.count() / block >= kBlocks * m.units;
  };
  while (more(2 * beside) && beside * bytes < kThreadBytes * tasks.count()) beside *= 2;
  return beside;
}

void for_rows(Builder& b, const Tasks& tasks, const std::vector<int64_t>& outer, int64_t inner, Expr task,
              const RowBody& row) {
  const Expr group = tasks.parts == 1 ? task : tasks.rows == 1 ? b.i64(0) : task / tasks.parts;
  Expr from = b.i64(0), to = b.i64(inner);
  if (tasks.parts > 1) {
    from = (tasks.rows == 1 ? task : task % tasks.parts) * tasks.part;
    to = from + tasks.part;
    if (inner % tasks.part != 0) to = min(to, b.i64(inner));
  }
  if (tasks.rows_per_task == 1) {
    row(digits(b, group, outer), from, to);
    return;
  }
  const Expr first = group * tasks.rows_per_task;
  Expr end = first + tasks.rows_per_task;
  if (tasks.rows % tasks.rows_per_task != 0) end = min(end, b.i64(tasks.rows));
  b.loop(LoopKind::serial, first, end, 1, [&](Expr r) { row(digits(b, r, outer), from, to); });
}

void for_tasks(Builder& b, const Tasks& tasks, const std::vector<int64_t>& outer, int64_t inner,
               const std::function<void()>& begin_task, const RowBody& row, int64_t beside) {
  const auto one = [&](Expr task) {
    begin_task();
    for_rows(b, tasks, outer, inner, task, row);
  };
  if (beside == 1) return b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks.count()), 1, one);
  const int64_t threads = kBlockThreads, all = threads * beside;
  LUMEN_CHECK(tasks.count() % all == 0, "{} tasks, {} of a block", tasks.count(), all);
  b.loop(LoopKind::grid, b.i64(0), b.i64(tasks.count() / all), 1, [&](Expr block) {
    b.loop(LoopKind::lane, b.i64(0), b.i64(threads), 1, [&](Expr lane) {
      const Expr first = block * all + lane;
      for (int64_t i = 0; i < beside; ++i) one(first + i * threads);
    });
  });
}

void for_axes(Builder& b, Body& body, const std::vector<int>& axes, const std::function<void()>& inside) {
  if (axes.empty()) return inside();
  b.loop(LoopKind::serial, b.i64(0), b.i64(body.extents()[axes[0]]), 1, [&](Expr i) {
    body.open(axes[0], i);
    for_axes(b, body, {axes.begin() + 1, axes.end()}, inside);
    body.close();
  });
}

void for_lanes(Builder& b, Body& body, int lanes, int unroll, Expr from, Expr to, bool exact,
               const std::function<void(int k)>& step) {
  const auto vector = [&](Expr at, int width, Expr count, int k) {
    body.open_lanes(at, width, count);
    step(k);
    body.close();
  };
  const Body::Chunking chunking = body.chunking(lanes);
  const auto floor_to = [&](int64_t unit) {
    const Expr length = to - from;
    return from + (length - length % unit);
  };
  if (chunking.lanes > 0) {
    const auto chunk = [&](Expr at, int64_t elements, int width) {
      body.enter_chunk(at, elements);
      for (int64_t p = 0; p < elements; p += width) {
        body.set_position(p);
        vector(at + p, width, {}, static_cast<int>(p / width) % unroll);
      }
    };
    const Expr whole = chunking.chunk == chunking.unit ? to : floor_to(chunking.chunk);
    b.loop(LoopKind::serial, from, whole, chunking.chunk, [&](Expr at) { chunk(at, chunking.chunk, chunking.lanes); });
    if (chunking.chunk != chunking.unit)
      b.loop(LoopKind::serial, whole, to, chunking.unit,
             [&](Expr at) { chunk(at, chunking.unit, chunking.unit_lanes); });
    return;
  }
  Expr at_end = from;
  if (unroll > 1) {
    at_end = floor_to(int64_t{lanes} * unroll);
    b.loop(LoopKind::serial, from, at_end, int64_t{lanes} * unroll, [&](Expr at) {
      for (int k = 0; k < unroll; ++k) vector(k == 0 ? at : at + int64_t{lanes} * k, lanes, {}, k);
    });
  }
  const Expr whole = exact ? to : floor_to(lanes);
  const auto known_from = b.known_integer(at_end), known_to = b.known_integer(whole);
  if (!(known_from && known_to && *known_from >= *known_to))
    b.loop(LoopKind::serial, at_end, whole, lanes, [&](Expr at) { vector(at, lanes, {}, 0); });
  if (exact) return;
  b.branch(whole < to, [&] { vector(whole, lanes, to - whole, 0); });
}

}  // namespace lumen::synth
