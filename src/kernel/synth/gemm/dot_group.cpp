// Counting and placing go matrix by matrix: a task scans all integers for its own matrix, so tasks share nothing and
// the order depends on the integers alone.
#include "kernel/synth/gemm/dot_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/pack.h"

namespace lumen::synth {
namespace {

constexpr int64_t kOneTask = 1 << 13;  // integers scanned by a sort that is not worth more tasks
constexpr int64_t kElementsOfTask = 1 << 13;
constexpr int64_t kMostRows = 128;  // of a block
constexpr double kShared = 1.15;    // rows per matrix read, from which sorting pays
constexpr int kPartsOfMixture = 4;  // if rows may pick nothing: assumed matrices of the whole mixture over those here

int add_scratch(Synthesis& out, int64_t bytes) {
  out.scratch.push_back(bytes);
  return out.scratch.size() - 1;
}

// Joins indices whose strides continue each other, in their order.
std::vector<DotIndex> joined(const std::vector<DotIndex>& indices, size_t load) {
  std::vector<DotIndex> out;
  for (const DotIndex& i : indices) {
    if (i.extent == 1) continue;
    const int64_t stride = i.strides[load];
    if (!out.empty() && out.back().strides[0] == stride * i.extent)
      out.back() = {out.back().extent * i.extent, {stride}, 0};
    else
      out.push_back({i.extent, {stride}, 0});
  }
  return out;
}

// One load alone, with the picking rows as its outer indices.
DotProblem rows_of(const DotProblem& p, size_t load) {
  DotProblem one;
  one.loads = {p.loads[load]};
  one.outer = joined(p.pick->rows, load);
  one.m.strides = one.n.strides = one.k.strides = {0};
  return one;
}

// Scratch and sizes of the sort.
struct Places {
  int counts = -1, order = -1, table = -1;  // scratch
  int64_t rows = 1, matrices = 1;
  int64_t align = 1;   // the first row of each matrix has a place that is a multiple of this
  int64_t places = 1;  // places of all rows
  int64_t height = 1;  // most rows of a block; 0: the table has the matrices' runs, not blocks
  int64_t blocks = 1;
  bool some = false;  // rows may pick no matrix
  int64_t table_bytes() const { return (height == 0 ? matrices : blocks) * kPickEntry * 4; }
};

class SortWriter {
 public:
  SortWriter(const graph::Graph& g, const DotProblem& picks, const Places& at, int lanes)
      : p_(picks), at_(at), lanes_(lanes), w_(g, picks, "sort"), b_(w_.b) {
    const bool line = p_.outer.empty() || (p_.outer.size() == 1 && p_.outer[0].strides[0] == 1);
    if (!line || p_.loads[0].scalar != Scalar::i32 || p_.loads[0].kind != DotLoad::Kind::memory) lanes_ = 1;
    counts_ = w_.scratch_param("counts", at.counts, at.matrices * 4, true);
  }

  void write(Synthesis& out) {
    if (at_.rows * at_.matrices <= kOneTask) {
      declare_places();
      b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(1), 1, [&](Expr) {
        each_matrix([&](Expr e) { count(e); });
        each_matrix([&](Expr e) { place(e); });
      });
      out.steps.push_back(w_.step(plan("sort")));
      return;
    }
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(at_.matrices), 1, [&](Expr e) { count(e); });
    out.steps.push_back(w_.step(plan("count")));
  }

  void write_places(Synthesis& out) {
    declare_places();
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(at_.matrices), 1, [&](Expr e) { place(e); });
    out.steps.push_back(w_.step(plan("sort")));
  }

 private:
  std::string plan(const std::string& what) const {
    const std::string blocks = at_.height == 0 ? "" : fmt::format(" into blocks of {}", at_.height);
    return fmt::format("{} {} rows by {}{}", what, at_.rows, at_.matrices, blocks);
  }
  void declare_places() {
    order_ = w_.scratch_param("order", at_.order, at_.places * 4, true);
    table_ = w_.scratch_param("table", at_.table, at_.table_bytes(), true);
  }
  void each_matrix(const std::function<void(Expr)>& body) {
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(at_.matrices), 1, body);
  }
  Expr narrow(Expr x) { return cast(x, Scalar::i32); }
  Expr wide(Expr x) { return cast(x, Scalar::i64); }
  Expr bytes(Expr number) { return number * 4; }
  Expr pick(Expr row) {
    w_.enter_outer(row);
    return wide(w_.read(0, w_.base(0), 0, 1, {}));
  }
  Expr vector(Expr row) { return b_.load(w_.buffer(0), {Scalar::i32, lanes_}, bytes(row + p_.loads[0].offset), 4); }
  // 1 in every lane whose row picks e.
  Expr hits(Expr row, Expr e) {
    const VType lanes{Scalar::i32, lanes_};
    const Expr own = vector(row) == b_.splat(narrow(e), lanes_);
    return select(own, b_.integer(1, lanes), b_.integer(0, lanes));
  }
  int64_t whole() const { return lanes_ > 1 ? at_.rows / lanes_ * lanes_ : 0; }
  void rows(Expr from, Expr to, const std::function<void(Expr)>& body) { b_.loop(LoopKind::serial, from, to, 1, body); }
  void where_own(Expr row, Expr e, const std::function<void()>& body) { b_.branch(pick(row) == e, body); }

  void count(Expr e) {
    const VType lanes{Scalar::i32, lanes_}, one{Scalar::i32, 1};
    const BufferId sums = b_.alloc(int64_t{lanes_} * 4), rest = b_.alloc(4);
    b_.store(sums, b_.integer(0, lanes), w_.i64(0), 4);
    b_.store(rest, b_.integer(0, one), w_.i64(0), 4);
    if (whole() > 0)
      b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole()), lanes_,
              [&](Expr row) { b_.store(sums, b_.load(sums, lanes, w_.i64(0), 4) + hits(row, e), w_.i64(0), 4); });
    rows(w_.i64(whole()), w_.i64(at_.rows), [&](Expr row) {
      where_own(row, e, [&] { b_.store(rest, b_.load(rest, one, w_.i64(0), 4) + 1, w_.i64(0), 4); });
    });
    const Expr of_vectors = b_.load(sums, lanes, w_.i64(0), 4);
    const Expr total = lanes_ == 1 ? of_vectors : b_.fold(ScalarOp::add_, of_vectors);
    b_.store(counts_, total + b_.load(rest, one, w_.i64(0), 4), bytes(e), 4);
    b_.branch(e == 0, [&] {  // one task checks for integers out of range
      rows(w_.i64(0), w_.i64(at_.rows), [&](Expr row) {
        const Expr x = pick(row);
        const Expr last = w_.i64(at_.matrices - 1);
        b_.guard(at_.some ? x <= last : (0 <= x) & (x <= last), x, loop::kGuardIndex);
      });
    });
  }

  Expr count_of(Expr e) { return wide(b_.load(counts_, {Scalar::i32, 1}, bytes(e), 4)); }
  Expr ceil_div(Expr x, int64_t y) { return (x + (y - 1)) / y; }
  void note(Expr entry, Expr matrix, Expr first, Expr count) {
    const Expr to = entry * (kPickEntry * 4);
    int64_t i = 0;
    for (const Expr x : {matrix, first, count}) b_.store(table_, narrow(x), to + (4 * i++), 4);
  }
  void leave_empty(Expr from, Expr to) {
    rows(from, to, [&](Expr at) { b_.store(order_, b_.integer(-1, {Scalar::i32, 1}), bytes(at), 4); });
  }

  void place(Expr e) {
    const VType one{Scalar::i64, 1};
    const BufferId next = b_.alloc(8), blocks = b_.alloc(8);
    const auto get = [&](BufferId x) { return b_.load(x, one, w_.i64(0), 8); };
    const auto set = [&](BufferId x, Expr to) { b_.store(x, to, w_.i64(0), 8); };
    set(next, w_.i64(0));
    set(blocks, w_.i64(0));
    b_.loop(LoopKind::serial, w_.i64(0), e, 1, [&](Expr before) {
      const Expr count = count_of(before);
      set(next, get(next) + ceil_div(count, at_.align) * at_.align);
      if (at_.height > 0) set(blocks, get(blocks) + ceil_div(count, at_.height));
    });
    const Expr begin = get(next), count = count_of(e);
    const Expr end = begin + ceil_div(count, at_.align) * at_.align;
    const auto own = [&](Expr row) {
      where_own(row, e, [&] {
        b_.store(order_, narrow(row), bytes(get(next)), 4);
        set(next, get(next) + 1);
      });
    };
    if (whole() > 0)
      b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole()), lanes_, [&](Expr row) {
        const Expr any = b_.fold(ScalarOp::add_, hits(row, e));
        b_.branch(0 < any, [&] { rows(row, row + lanes_, own); });
      });
    rows(w_.i64(whole()), w_.i64(at_.rows), own);
    leave_empty(begin + count, end);
    const Expr is_last = e == at_.matrices - 1;
    b_.branch(is_last, [&] { leave_empty(end, w_.i64(at_.places)); });
    if (at_.height == 0) return note(e, e, begin, count);
    const Expr block = get(blocks), own_blocks = ceil_div(count, at_.height);
    rows(w_.i64(0), own_blocks, [&](Expr i) {
      const Expr done = i * at_.height;
      const Expr here = min(count - done, w_.i64(at_.height));
      note(block + i, e, begin + done, here);
    });
    b_.branch(is_last, [&] {  // unused blocks
      rows(block + own_blocks, w_.i64(at_.blocks), [&](Expr i) { note(i, w_.i64(0), w_.i64(0), w_.i64(0)); });
    });
  }

  const DotProblem& p_;
  const Places& at_;
  int lanes_;
  DotWriter w_;
  Builder& b_;
  BufferId counts_ = -1, order_ = -1, table_ = -1;
};

void write_sort(const graph::Graph& g, const DotProblem& p, Places& at, const machine::Machine& m, Synthesis& out) {
  at.counts = add_scratch(out, at.matrices * 4);
  at.order = add_scratch(out, at.places * 4);
  at.table = add_scratch(out, at.table_bytes());
  const DotProblem picks = rows_of(p, p.pick->load);
  SortWriter(g, picks, at, m.f32_lanes()).write(out);
  if (at.rows * at.matrices > kOneTask) SortWriter(g, picks, at, m.f32_lanes()).write_places(out);
}

// Writes rows of a load in the order of `order`, dense in scratch, zeros where no row exists. `elements`: the indices
// of a row, slowest first. Afterwards the load reads that scratch.
void write_rows(const graph::Graph& g, DotProblem& p, size_t load, const std::vector<const DotIndex*>& elements,
                const Places& at, const machine::Machine& m, Synthesis& out) {
  DotProblem one = rows_of(p, load);
  std::vector<DotIndex> inner;
  for (const DotIndex* i : elements) inner.push_back(*i);
  inner = joined(inner, load);
  if (inner.empty()) inner.push_back({1, {1}, 0});
  one.k = inner.back();
  inner.pop_back();
  DotLoad& l = p.loads[load];
  const bool packed = l.kind == DotLoad::Kind::packed;
  const int64_t outer = graph::count_of(inner), length = outer * one.k.extent, rows = at.places,
                bytes = scalar_bytes(l.scalar);
  const int scratch = add_scratch(out, rows * length * bytes);
  const int lanes = m.f32_lanes();
  DotWriter w(g, one, "rows");
  Builder& b = w.b;
  const BufferId order = w.scratch_param("order", at.order, rows * 4, false);
  const BufferId to = w.scratch_param("rows", scratch, rows * length * bytes, true);
  const VType vector{l.scalar, lanes};
  const bool by_blocks = packed && inner.empty() && one.k.strides[0] == 1 && unpacks_along(one, 0, one.k);
  const auto copy = [&](Expr from, Expr at_byte) {
    if (by_blocks) return copy_rows(w, one, {0, from, 0}, w.i64(1), w.i64(one.k.extent), {to, at_byte, 0}, lanes);
    const int64_t stride = one.k.strides[0], whole = one.k.extent / lanes * lanes;
    const auto move = [&](Expr k, Expr count) {
      const Expr v = w.read(0, from + k * stride, stride, lanes, count);
      b.store(to, v, at_byte + k * bytes, bytes, count);
    };
    b.loop(LoopKind::serial, w.i64(0), w.i64(whole), lanes, [&](Expr k) { move(k, {}); });
    if (whole < one.k.extent) move(w.i64(whole), w.i64(one.k.extent - whole));
  };
  const auto clear = [&](Expr at_byte) {
    const Expr zero = b.real(0, vector);
    const int64_t whole = length / lanes * lanes;
    b.loop(LoopKind::serial, w.i64(0), w.i64(whole), lanes,
           [&](Expr k) { b.store(to, zero, at_byte + k * bytes, bytes); });
    if (whole < length) b.store(to, zero, at_byte + whole * bytes, bytes, w.i64(length - whole));
  };
  const int64_t together = std::max<int64_t>(1, m.grain(kElementsOfTask) / length);
  b.loop(LoopKind::parallel, w.i64(0), w.i64((rows + together - 1) / together), 1, [&](Expr task) {
    const Expr first = task * together;
    b.loop(LoopKind::serial, first, min(first + together, w.i64(rows)), 1, [&](Expr at_row) {
      const Expr number = cast(b.load(order, {Scalar::i32, 1}, at_row * 4, 4), Scalar::i64);
      const Expr start = at_row * (length * bytes);
      b.branch(
          0 <= number,
          [&] {
            w.enter_outer(number);
            b.loop(LoopKind::serial, w.i64(0), w.i64(outer), 1,
                   [&](Expr part) { copy(moved(w.base(0), part, inner, 0), start + part * (one.k.extent * bytes)); });
          },
          [&] { clear(start); });
    });
  });
  out.steps.push_back(w.step(fmt::format("rows {}x{} in order", rows, length)));

  const Scalar scalar = l.scalar;
  l = {};
  l.scalar = scalar;
  l.scratch = scratch;
  l.elements = rows * length;
}

// Sets strides of a load that is dense row by row, `elements` of a row slowest first; returns the row's length.
int64_t lay_out(size_t load, const std::vector<DotIndex*>& elements, DotProblem& p) {
  for (auto* side : {&p.outer, &p.outer_k})
    for (DotIndex& i : *side) i.strides[load] = 0;
  p.m.strides[load] = p.n.strides[load] = p.k.strides[load] = 0;
  int64_t stride = 1;
  for (size_t d = elements.size(); d-- > 0; stride *= elements[d]->extent) elements[d]->strides[load] = stride;
  return stride;
}

// Rows of a block: about as many as a matrix gets, so that most need one block; a few more if that fills tiles.
int64_t rows_of_block(double mean, const machine::Machine& m) {
  const auto wanted = static_cast<int64_t>(std::ceil(1.5 * mean));
  const int64_t few = m.wave > 1 ? 4 : 6;  // so few rows need not fill tiles
  if (wanted <= few) return std::max<int64_t>(wanted, 2);
  return std::min((wanted + 15) / 16 * 16, kMostRows);
}

DotProblem into_blocks(const graph::Graph& g, DotProblem p, const machine::Machine& m, Synthesis& out) {
  const int64_t rows = p.pick->row_count(), matrices = p.pick->count;
  const double of = matrices * (p.pick->some ? kPartsOfMixture : 1.0), mean = rows / of;
  const double distinct = of * (1 - std::pow(1 - 1 / of, rows));  // expected count, if picks are uniform
  if (rows / distinct < kShared) return p;
  Places at;
  at.rows = rows;
  at.matrices = matrices;
  at.some = p.pick->some;
  at.height = rows_of_block(mean, m);
  at.blocks = (rows + std::min(rows, matrices) * (at.height - 1)) / at.height;
  if (!m.squares.empty()) at.align = 2;  // rows multiplied by one instruction
  for (const machine::TileRow& tile : m.tiles) at.align = std::max<int64_t>(at.align, tile.rows);
  at.places = rows + std::min(rows, matrices) * (at.align - 1) + at.height;
  write_sort(g, p, at, m, out);

  std::vector<DotIndex*> elements;
  for (DotIndex& i : p.outer_k) elements.push_back(&i);
  elements.push_back(&p.k);
  write_rows(g, p, 0, {elements.begin(), elements.end()}, at, m, out);
  const int64_t length = lay_out(0, elements, p);
  const size_t loads = p.loads.size();
  const DotIndex block{at.blocks, std::vector<int64_t>(loads, 0), 0};
  p.m = {at.height, std::vector<int64_t>(loads, 0), 0};
  p.m.strides[0] = length;
  p.outer.erase(p.outer.begin(), p.outer.begin() + p.pick->rows.size());
  p.outer.insert(p.outer.begin(), block);
  p.blocks = DotBlocks{at.order, at.table, at.blocks, at.places};
  return p;
}

DotProblem into_runs(const graph::Graph& g, DotProblem p, const machine::Machine& m, Synthesis& out) {
  Places at;
  at.rows = at.places = p.pick->row_count();
  at.matrices = p.pick->count;
  at.some = p.pick->some;
  at.height = 0;
  write_sort(g, p, at, m, out);
  // Indices of each factor within a row, in the order of the result; the other factor does not depend on them.
  std::vector<DotIndex*> of_a, of_b;
  for (size_t d = 1; d < p.outer.size(); ++d) (p.outer[d].strides[0] != 0 ? of_a : of_b).push_back(&p.outer[d]);
  of_a.push_back(&p.m);
  of_b.push_back(&p.n);
  write_rows(g, p, 0, {of_a.begin(), of_a.end()}, at, m, out);
  write_rows(g, p, 1, {of_b.begin(), of_b.end()}, at, m, out);
  p.k = {at.rows, std::vector<int64_t>(p.loads.size(), 0), 0};
  const int64_t row_of_a = lay_out(0, of_a, p), row_of_b = lay_out(1, of_b, p);
  p.k.strides[0] = row_of_a;
  p.k.strides[1] = row_of_b;
  p.runs = DotRuns{at.table};
  return p;
}

// Writes the results of rows that pick nothing: the epilogue of zero sums. The product skips these rows.
void write_left_out(const graph::Graph& g, const DotProblem& p, const machine::Machine& m, Synthesis& out) {
  DotProblem zeros = p;
  for (const size_t load : {0, 1}) {
    zeros.loads[load] = {};
    zeros.loads[load].kind = DotLoad::Kind::splat;
  }
  zeros.row_scales.clear();
  DotWriter w(g, zeros, "left_out");
  Builder& b = w.b;
  const int64_t columns = std::min(m.grain(kElementsOfTask), p.n.extent), parts = ceil_div(p.n.extent, columns);
  const int lanes = m.f32_lanes();
  b.loop(LoopKind::parallel, w.i64(0), w.i64(p.outer_extent() * p.m.extent * parts), 1, [&](Expr task) {
    const Expr row = task / parts;
    w.enter_outer(row / p.m.extent);
    w.where_left_out([&] {
      const Expr first = task % parts * columns, end = min(first + columns, w.i64(p.n.extent));
      b.loop(LoopKind::serial, first, end, lanes,
             [&](Expr n) { w.finish_vector(w.zero(lanes), row % p.m.extent, n, min(end - n, w.i64(lanes))); });
    });
  });
  out.steps.push_back(w.step(fmt::format("zeros of {} rows that pick none of {}", p.pick->row_count(), p.pick->count)));
}

}  // namespace

DotProblem sort_rows(const graph::Graph& g, DotProblem p, const machine::Machine& m, Synthesis& out, bool in_blocks) {
  if (!p.pick) return p;
  if (p.pick->some && !p.pick->scatters) write_left_out(g, p, m, out);
  if (p.pick->scatters) return into_runs(g, std::move(p), m, out);
  return in_blocks ? into_blocks(g, std::move(p), m, out) : p;
}

}  // namespace lumen::synth
