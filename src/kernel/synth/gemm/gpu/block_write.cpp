// See block_write.h.
#include "kernel/synth/gemm/gpu/block_write.h"

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/unpack/bits_as.h"

namespace lumen::synth {

using Side = BlockProduct::Side;

namespace {

constexpr int64_t kStoreBytes = 16;  // that a lane stores at once

}  // namespace

void BlockWrite::result(Expr lane, Expr m0, Expr n0) {
  Sink sink;
  sink.bytes = scalar_bytes(p_.result_scalar);
  sink.finish = [&](Expr sums, Expr m, Expr n, Expr count, int64_t beside) {
    b_.use_fast_math(fast_);
    const Expr out = w_.finished(sums, m, n, count, beside);
    b_.use_fast_math({});
    return out;
  };
  sink.reads = w_.reads_along_n();
  sink.store = [&](Expr out, Expr m, Expr n, Expr count, int align) { w_.put(out, m, n, count, align); };
  sink.rows = p_.m.extent;
  sink.columns = p_.n.extent;
  const int64_t wide = kStoreBytes / sink.bytes;
  const auto whole = [&](int64_t elements) { return elements % wide == 0; };
  sink.aligned = p_.n.result == 1 && whole(p_.n.extent) && whole(p_.m.result) && !p_.blocks;
  for (const auto* indices : {&p_.outer, &p_.joint_m})
    for (const DotIndex& i : *indices) sink.aligned = sink.aligned && whole(i.result);
  if (!p_.blocks) return write(lane, m0, n0, sink);
  // Rows of sorted blocks are scattered in the result.
  sink.finish = [](Expr sums, Expr, Expr, Expr, int64_t) { return sums; };
  sink.reads = false;
  sink.store = [&](Expr sums, Expr m, Expr n, Expr count, int) { w_.finish_vector(sums, m, n, count); };
  write(lane, m0, n0, sink);
}

void BlockWrite::part(Expr lane, Expr m0, Expr n0, BufferId partial, Expr row0) {
  sums(lane, m0, n0, partial, row0, p_.m.extent, p_.n.extent);
}

void BlockWrite::partial_tile(Expr lane, BufferId partial, Expr number) {
  const int64_t rows = product_.tile().m();
  sums(lane, b_.i64(0), b_.i64(0), partial, number * rows, rows, product_.tile().n());
}

void BlockWrite::sums(Expr lane, Expr m0, Expr n0, BufferId partial, Expr row0, int64_t rows, int64_t columns) {
  Sink sink;
  sink.finish = [](Expr x, Expr, Expr, Expr, int64_t) { return x; };
  sink.store = [&](Expr out, Expr m, Expr n, Expr count, int align) {
    const Expr at = (row0 + m) * columns + n;
    b_.store(partial, out, at * 4, align, count);
  };
  sink.rows = rows;
  sink.columns = columns;
  sink.aligned = columns % (kStoreBytes / 4) == 0;
  write(lane, m0, n0, sink);
}

void BlockWrite::write(Expr lane, Expr m0, Expr n0, const Sink& sink) {
  Sink s = sink;
  s.whole_m = sink.rows % product_.tile().m() == 0;
  s.whole_n = sink.columns % product_.tile().n() == 0;
  const int64_t wide = kStoreBytes / (product_.run() * sink.bytes);
  const int lanes = std::min<int64_t>(wide, product_.lanes_beside());
  if (sink.aligned && lanes > 1)
    write_wide(lane, m0, n0, s, lanes);
  else
    write_runs(lane, m0, n0, s);
}

void BlockWrite::write_runs(Expr lane, Expr m0, Expr n0, const Sink& sink) {
  const int run = product_.run();
  product_.each_sum(lane, [&](Expr row, Expr column, Expr sums) {
    const Expr m = m0 + row, n = n0 + column;
    Expr count;
    if (sink.columns % run != 0) count = min(sink.columns - n, b_.i64(run));
    const int64_t beside = count.exists() ? 1 : run;
    const auto put = [&] { sink.store(sink.finish(sums, m, n, count, beside), m, n, count, sink.bytes); };
    if (sink.whole_m && sink.whole_n) return put();
    const Expr inside_m = m < sink.rows, inside_n = n < sink.columns;
    b_.branch(sink.whole_m ? inside_n : sink.whole_n ? inside_m : inside_m & inside_n, put);
  });
}

// All lanes exchange runs, also those whose rows and columns do not exist.
void BlockWrite::write_wide(Expr lane, Expr m0, Expr n0, const Sink& sink, int lanes) {
  const int run = product_.run();
  // Offset of this lane's wide vector: the lane of number i gets the i-th run of all lanes, which are contiguous.
  const Expr moved = product_.number_beside(lane, lanes) * (product_.apart_beside() - run);
  for (int number = 0; number < product_.lines(Side::a); ++number) {
    const Expr m = m0 + product_.line(Side::a, lane, number);
    const Expr m_there = sink.whole_m ? m : min(m, b_.i64(sink.rows - 1));
    std::vector<Expr> runs;
    Expr first;
    product_.change_line(Side::a, lane, number, [&](Expr column, Expr sums) {
      const Expr n = n0 + column;
      const auto there = [&](Expr at, int64_t width) {
        return sink.whole_n ? at : min(at, b_.i64(sink.columns - width));
      };
      if (runs.empty()) first = n;
      runs.push_back(sink.reads ? sums : sink.finish(sums, m_there, there(n, run), {}, run));
      if (std::ssize(runs) < lanes) return Expr{};
      const VType type{b_.type(sums).scalar, lanes * run};
      Expr out = product_.pass_beside(lane, std::move(runs));
      const Expr n_wide = first + moved;
      if (sink.reads) out = sink.finish(bits_as(b_, out, type), m_there, there(n_wide, type.lanes), {}, type.lanes);
      const auto put = [&] { sink.store(out, m, n_wide, {}, int64_t{lanes} * run * sink.bytes); };
      runs.clear();
      if (sink.whole_m && sink.whole_n) {
        put();
        return Expr{};
      }
      const Expr inside_m = m < sink.rows, inside_n = n_wide < sink.columns;
      b_.branch(inside_m & inside_n, put);
      return Expr{};
    });
    LUMEN_CHECK(runs.empty(), "{} runs are left", runs.size());
  }
}

}  // namespace lumen::synth
