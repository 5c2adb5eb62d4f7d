// See weight_stages.h.
#include "kernel/synth/gemm/skinny/weight_stages.h"

#include <numeric>

#include "base/round_up.h"

namespace lumen::synth {
namespace {

constexpr int64_t kLane = 16, kLeastVector = 4;  // bytes of a copy
constexpr int64_t kLongestRun = 1024;            // elements

}  // namespace

std::optional<WeightStages::Plan> WeightStages::plan(const DotProblem& p, int64_t stage_k, int64_t unrolled,
                                                     int64_t rows, int64_t lanes, int64_t least_together, size_t load) {
  const DotLoad& b = p.loads[load];
  if (b.kind != DotLoad::Kind::packed || b.format->tile_bytes > 0 || !p.outer_k.empty() || p.k.extent % stage_k != 0)
    return std::nullopt;
  std::optional<Plan> best;
  const int64_t row_bytes = WeightCopies::bytes_of(p, p.k.extent, load),
                least = std::lcm(unrolled * stage_k, b.format->block);
  const int64_t vector = WeightCopies::vector_of(p, kLane, row_bytes, load);
  for (int64_t run = least; run <= std::max(least, kLongestRun); run += least) {
    Plan t{stage_k, run / stage_k, 1, {}};
    if (t.together < least_together) continue;
    WeightCopies::Shape& c = t.copies;
    c.rows = rows;
    c.chunk = WeightCopies::bytes_of(p, run, load);
    c.load = load;
    c.vector = vector;
    c.row_bytes = row_bytes;
    c.lanes = lanes;
    c.by_rows = true;
    // Adjacent lanes read adjacent rows: these are an odd number of units apart, to avoid bank conflicts.
    c.pitch = ceil_div(c.copied(), kLane) * kLane;
    if (c.pitch / kLane % 2 == 0) c.pitch += kLane;
    c.stage_bytes = rows * c.pitch;
    const bool whole = c.step() == c.vector;
    if (c.vector >= kLeastVector && (!best || whole)) best = t;
    if (whole) break;
  }
  return best;
}

WeightStages::WeightStages(DotWriter& w, const DotProblem& p, const Plan& plan)
    : p_(p), plan_(plan), copies_(w, p, plan.copies, plan.bytes(), {}), b_(w.b) {}

Expr WeightStages::number(Expr run) const {
  return slice_.exists() ? run % 2 + slice_ * 2 : run % 2;
}

void WeightStages::begin(Expr lane, Expr run, Expr to) {
  b_.branch(run * plan_.together < to, [&] { copies_.begin(lane, run, number(run)); });
}

void WeightStages::begin_first(Expr lane, Expr from, Expr to) {
  const Expr run = from / plan_.together;
  begin(lane, run, to);
  begin(lane, run + 1, to);
}

void WeightStages::begin_next(Expr lane, Expr stage, Expr from, Expr to) {
  b_.branch((stage % plan_.together == b_.i64(0)) & (from < stage),
            [&] { begin(lane, stage / plan_.together + 1, to); });
}

void WeightStages::enter_block(Unpack& cursor, Expr row, Expr k, int64_t blocks, Expr further, int64_t hidden) {
  const WeightCopies::Shape& c = plan_.copies;
  const Format& f = *p_.loads[c.load].format;
  const int64_t run_k = plan_.together * plan_.stage_k;
  const Expr run = k / run_k, block = k % run_k / f.block;
  // Multiplies by the common alignment last, so that code generators can infer it.
  const int64_t whole = std::gcd(std::gcd(c.stage_bytes, c.pitch), std::gcd(f.block_bytes, c.step()));
  Expr at = number(run) * (c.stage_bytes / whole) + row * (c.pitch / whole) + block * (f.block_bytes / whole);
  if (c.step() < c.vector) at = at + copies_.shift(run) / whole;
  at = at * whole;
  if (further.exists()) at = at + further;
  cursor.enter_copied(b_.i64(0), blocks, copies_.buffer(), at, hidden);
}

}  // namespace lumen::synth
