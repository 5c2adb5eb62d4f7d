#include "kernel/synth/gemm/dot_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

DotProblem in_parts(const DotProblem& p, int64_t parts, int scratch) {
  LUMEN_CHECK(!p.outer_k.empty() && p.outer_k[0].extent % parts == 0, "{} parts of K", parts);
  DotProblem out = p;
  out.loads.resize(2);
  out.epilogue.clear();
  out.result = p.contract;
  out.result_scalar = p.sum;
  out.result_scratch = scratch;
  out.parts = parts;
  DotIndex& cut = out.outer_k[0];
  cut.extent /= parts;
  DotIndex part = cut;
  part.extent = parts;
  for (int64_t& stride : part.strides) stride *= cut.extent;
  if (cut.extent == 1 && out.outer_k.size() > 1) out.outer_k.erase(out.outer_k.begin());
  // The result is dense: row after row, outer index by outer index.
  out.n.result = 1;
  out.m.result = p.n.extent;
  int64_t rows = p.m.extent;
  for (size_t d = out.outer.size(); d-- > 0; rows *= out.outer[d].extent) out.outer[d].result = rows * p.n.extent;
  part.result = rows * p.n.extent;
  out.outer.insert(out.outer.begin(), part);
  out.result_bytes = parts * rows * p.n.extent * 4;
  return out;
}

Step write_sum_of_parts(const graph::Graph& g, DotProblem p, int64_t parts, int scratch, int lanes) {
  for (size_t load = 0; load < 2; ++load) p.loads[load].kind = DotLoad::Kind::splat;
  DotWriter w(g, p, "sum");
  const int64_t rows = p.outer_extent() * p.m.extent, bytes = parts * rows * p.n.extent * 4;
  const BufferId sums = w.scratch_param("parts", scratch, bytes, false);
  lanes = std::min<int64_t>(lanes, p.n.extent);
  w.b.loop(LoopKind::parallel, w.i64(0), w.i64(rows), 1, [&](Expr row) {
    w.enter_outer(row / p.m.extent);
    w.b.loop(LoopKind::serial, w.i64(0), w.i64(p.n.extent), lanes, [&](Expr n) {
      const Expr count = p.n.extent % lanes == 0 ? Expr{} : min(p.n.extent - n, w.i64(lanes));
      Expr sum;
      for (int64_t part = 0; part < parts; ++part) {
        const Expr at = (row + part * rows) * p.n.extent + n;
        const Expr x = w.b.load(sums, {p.sum, lanes}, at * 4, 4, count);
        sum = part == 0 ? x : sum + x;
      }
      w.finish_vector(sum, row % p.m.extent, n, count);
    });
  });
  return w.step(fmt::format("{} sum of {} parts", describe_shape(p), parts));
}

}  // namespace lumen::synth
