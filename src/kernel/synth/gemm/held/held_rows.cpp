// See held_rows.h.
#include "kernel/synth/gemm/held/held_rows.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/mma/fragment_digits.h"

namespace lumen::synth {
namespace {

constexpr int64_t kMostRun = 128;   // elements: registers of a lane
constexpr int64_t kUnitBytes = 16;  // written at once

}  // namespace

std::vector<int64_t> HeldRows::order(const SkinnyMmaPlan& unit) {
  const FragmentDigits held = FragmentDigits::of(unit.row->collective->operands[1].fragment);
  const std::vector<FragmentDigits::Part>& parts = held.column_parts;
  const int64_t share = parts.size(), k = unit.row->k, lanes = unit.lanes_k;
  // Digits between the part of a lane and the last ones belong to the lanes that share K.
  int64_t lane_weight = 1;
  for (const FragmentDigits::Digit& d : held.columns)
    if (d.lanes > 0) lane_weight = d.weight;
  std::vector<int64_t> out(unit.order.unit, -1);
  for (int64_t step = 0; step < unit.order.unit / k; ++step)
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t i = 0; i < share; ++i)
        out[step * k + lane * lane_weight + parts[i].offset] =
            unit.order.elements[step * share + i] + lane * unit.order.lane_elements;
  return out;
}

bool HeldRows::can_order(const SkinnyMmaPlan& unit) {
  const int64_t run = HeldRows::run(unit), k = unit.row->k;
  if (run > kMostRun || run % k != 0 || unit.order.unit % run != 0) return false;
  int lane_digits = 0;
  for (const FragmentDigits::Digit& d : FragmentDigits::of(unit.row->collective->operands[1].fragment).columns)
    lane_digits += d.lanes > 0;
  if (lane_digits != 1) return false;
  const std::vector<int64_t> places = order(unit);
  for (int64_t i = 0; i < std::ssize(places); ++i)
    if (places[i] < 0 || places[i] / run != i / run) return false;
  return true;
}

Step HeldRows::write(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& unit, int number) {
  const DotProblem one = p.only_a();
  DotWriter w(g, one, "order");
  Builder& b = w.b;
  const BufferId out = w.scratch_param("rows", number, bytes(p), true);
  const std::vector<int64_t> places = order(unit);
  const int64_t run = HeldRows::run(unit), runs = unit.order.unit / run, all = p.k.extent / run;
  const Scalar from = p.loads[0].scalar;
  const auto write_run = [&](Expr row, Expr number_of_run, int64_t of_unit) {
    const Expr first = w.base(0) + row * p.m.strides[0] + number_of_run * run;
    std::vector<Expr> read;
    for (int64_t i = 0; i < run; i += kVector)
      read.push_back(
          b.load(w.buffer(0), {from, int{kVector}}, (first + i) * scalar_bytes(from), kVector * scalar_bytes(from)));
    const Expr to = (row * p.k.extent + number_of_run * run) * 2;
    constexpr int kWritten = kUnitBytes / 2;
    for (int64_t i = 0; i < run; i += kWritten) {
      const Expr eight = b.join(kWritten, [&](int j) {
        const int64_t place = places[of_unit * run + i + j] - of_unit * run;
        return b.extract(read[place / kVector], place % kVector);
      });
      b.store(out, from == Scalar::bf16 ? eight : cast(eight, Scalar::bf16), to + i * 2, kUnitBytes);
    }
  };
  // Runs of a unit need separate code only if the order of the first does not hold for all.
  bool alike = true;
  for (int64_t i = 0; i < std::ssize(places); ++i) alike = alike && places[i] == places[i % run] + i / run * run;
  b.loop(LoopKind::parallel, w.i64(0), w.i64(p.m.extent * all / (alike ? 1 : runs)), 1, [&](Expr task) {
    w.enter_outer(w.i64(0));
    const int64_t each = alike ? 1 : runs, across = all / each;
    for (int64_t i = 0; i < each; ++i) write_run(task / across, task % across * each + i, i);
  });
  return w.step(fmt::format("order {}x{} as bf16 by {}", p.m.extent, p.k.extent, unit.order.unit));
}

}  // namespace lumen::synth
