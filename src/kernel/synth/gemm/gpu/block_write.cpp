// See block_write.h.
#include "kernel/synth/gemm/gpu/block_write.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using loop::BufferId;
using Value = loop::ValueId;
using Side = BlockProduct::Side;

namespace {

constexpr int64_t kStoreBytes = 16;  // of a lane

}  // namespace

void BlockWrite::result(Value lane, Value m0, Value n0) {
  Sink sink;
  sink.bytes = scalar_bytes(p_.result_scalar);
  sink.finish = [&](Value sums, Value m, Value n, Value count) { return w_.finished(sums, m, n, count); };
  sink.store = [&](Value out, Value m, Value n, Value count, int align) { w_.put(out, m, n, count, align); };
  sink.rows = p_.m.extent;
  sink.columns = p_.n.extent;
  const int64_t wide = kStoreBytes / sink.bytes;
  const auto whole = [&](int64_t elements) { return elements % wide == 0; };
  sink.aligned = p_.n.result == 1 && whole(p_.n.extent) && whole(p_.m.result) && !p_.blocks &&
                 std::all_of(p_.outer.begin(), p_.outer.end(), [&](const DotIndex& i) { return whole(i.result); });
  if (!p_.blocks) return write(lane, m0, n0, sink);
  // Rows of blocks lie anywhere.
  sink.finish = [](Value sums, Value, Value, Value) { return sums; };
  sink.store = [&](Value sums, Value m, Value n, Value count, int) { w_.finish_vector(sums, m, n, count); };
  write(lane, m0, n0, sink);
}

void BlockWrite::part(Value lane, Value m0, Value n0, BufferId partial, Value row0) {
  sums(lane, m0, n0, partial, row0, p_.m.extent, p_.n.extent);
}

void BlockWrite::segment(Value lane, BufferId partial, Value number) {
  const int64_t rows = product_.tile().m();
  sums(lane, b_.i64(0), b_.i64(0), partial, b_.mul(number, b_.i64(rows)), rows, product_.tile().n());
}

void BlockWrite::sums(Value lane, Value m0, Value n0, BufferId partial, Value row0, int64_t rows, int64_t columns) {
  Sink sink;
  sink.finish = [](Value x, Value, Value, Value) { return x; };
  sink.store = [&](Value out, Value m, Value n, Value count, int align) {
    const Value at = b_.add(b_.mul(b_.add(row0, m), b_.i64(columns)), n);
    b_.store(partial, out, b_.mul(at, b_.i64(4)), align, count);
  };
  sink.rows = rows;
  sink.columns = columns;
  sink.aligned = columns % (kStoreBytes / 4) == 0;
  write(lane, m0, n0, sink);
}

void BlockWrite::write(Value lane, Value m0, Value n0, const Sink& sink) {
  Sink s = sink;
  s.whole_m = sink.rows % product_.tile().m() == 0;
  s.whole_n = sink.columns % product_.tile().n() == 0;
  const int64_t wide = kStoreBytes / (product_.run() * sink.bytes);
  const int lanes = static_cast<int>(std::min<int64_t>(wide, product_.lanes_beside()));
  if (sink.aligned && lanes > 1)
    write_wide(lane, m0, n0, s, lanes);
  else
    write_runs(lane, m0, n0, s);
}

void BlockWrite::write_runs(Value lane, Value m0, Value n0, const Sink& sink) {
  const int run = product_.run();
  product_.each_sum(lane, [&](Value row, Value column, Value sums) {
    const Value m = b_.add(m0, row), n = b_.add(n0, column);
    Value count = -1;
    if (sink.columns % run != 0) count = w_.min(b_.op(ScalarOp::sub_, b_.i64(sink.columns), n), b_.i64(run));
    const auto put = [&] { sink.store(sink.finish(sums, m, n, count), m, n, count, static_cast<int>(sink.bytes)); };
    if (sink.whole_m && sink.whole_n) return put();
    const Value inside_m = b_.op(ScalarOp::lt_, m, b_.i64(sink.rows)),
                inside_n = b_.op(ScalarOp::lt_, n, b_.i64(sink.columns));
    b_.branch(sink.whole_m ? inside_n : sink.whole_n ? inside_m : b_.op(ScalarOp::and_, inside_m, inside_n), put);
  });
}

// All lanes pass runs on, also those whose rows and columns do not exist.
void BlockWrite::write_wide(Value lane, Value m0, Value n0, const Sink& sink, int lanes) {
  const int run = product_.run();
  // Where this lane's wide vector begins: it has the run of its number of those that follow, and of its neighbours.
  const Value moved = b_.mul(product_.number_beside(lane, lanes), b_.i64(product_.apart_beside() - run));
  for (int number = 0; number < product_.lines(Side::a); ++number) {
    const Value m = b_.add(m0, product_.line(Side::a, lane, number));
    const Value m_there = sink.whole_m ? m : w_.min(m, b_.i64(sink.rows - 1));
    std::vector<Value> runs;
    Value first = -1;
    product_.change_line(Side::a, lane, number, [&](Value column, Value sums) {
      const Value n = b_.add(n0, column);
      if (runs.empty()) first = n;
      runs.push_back(sink.finish(sums, m_there, sink.whole_n ? n : w_.min(n, b_.i64(sink.columns - run)), -1));
      if (static_cast<int>(runs.size()) < lanes) return -1;
      const Value out = product_.pass_beside(lane, std::move(runs));
      const Value n_wide = b_.add(first, moved);
      const auto put = [&] { sink.store(out, m, n_wide, -1, static_cast<int>(int64_t{lanes} * run * sink.bytes)); };
      runs.clear();
      if (sink.whole_m && sink.whole_n) {
        put();
        return -1;
      }
      const Value inside_m = b_.op(ScalarOp::lt_, m, b_.i64(sink.rows)),
                  inside_n = b_.op(ScalarOp::lt_, n_wide, b_.i64(sink.columns));
      b_.branch(b_.op(ScalarOp::and_, inside_m, inside_n), put);
      return -1;
    });
    LUMEN_CHECK(runs.empty(), "{} runs are left", runs.size());
  }
}

}  // namespace lumen::synth
