// Loops around a Body: how an iteration space is cut into tasks, and the vector loop along its last axis. Fixed by the
// shape and the machine alone, never by the number of threads. Proved by tests/kernel/synth/synth_map_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/body/body.h"

namespace lumen::synth {

// Tasks over the outer axes (all counters known inside) and, where one row is much work, over parts of the vector axis.
struct Tasks {
  int64_t rows = 1;  // product of the outer axes
  int64_t rows_per_task = 1;
  int64_t parts = 1;  // of the vector axis
  int64_t part = 0;   // elements per part
  int64_t count() const { return (rows + rows_per_task - 1) / rows_per_task * parts; }
};
// About `grain` elements per task; parts begin at multiples of `unit`.
Tasks cut(const std::vector<int64_t>& outer, int64_t inner, int64_t grain, int64_t unit, bool may_split_inner = true);

// for row in the task's rows: body(counters of the outer axes, first and end of the part). Emits the top parallel loop.
// `beside`: tasks per thread of a GPU; the threads of a block have adjacent tasks.
using RowBody = std::function<void(const std::vector<Expr>& outer, Expr from, Expr to)>;
void for_tasks(Builder& b, const Tasks& tasks, const std::vector<int64_t>& outer, int64_t inner,
               const std::function<void()>& begin_task, const RowBody& row, int64_t beside = 1);
// .. of one task of a loop that the caller emits.
void for_rows(Builder& b, const Tasks& tasks, const std::vector<int64_t>& outer, int64_t inner, Expr task,
              const RowBody& row);
// Tasks per thread that keep enough loads in flight, where all tasks together read `bytes`.
int64_t tasks_beside(const Tasks& tasks, double bytes, const machine::Machine& m);

// Lanes from .. to of the body's vector axis: full vectors, `unroll` at a time, then a masked rest; block by block when
// formats are read. `exact`: to - from is a multiple of the vector. step(k) emits one vector's work, k = 0 .. unroll
// - 1.
void for_lanes(Builder& b, Body& body, int lanes, int unroll, Expr from, Expr to, bool exact,
               const std::function<void(int k)>& step);

// Serial loops over axes of the body, outermost first, all open in `inside`.
void for_axes(Builder& b, Body& body, const std::vector<int>& axes, const std::function<void()>& inside);

// Digits of `number` over the extents, outermost first.
std::vector<Expr> digits(Builder& b, Expr number, const std::vector<int64_t>& extents);

}  // namespace lumen::synth
