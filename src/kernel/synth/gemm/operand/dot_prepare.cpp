// See dot_prepare.h.
#include "kernel/synth/gemm/operand/dot_prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/operand/row_scales.h"
#include "kernel/synth/mma/block_product.h"
#include "kernel/synth/order/lane_pass.h"
#include "kernel/synth/order/transpose.h"
#include "kernel/synth/unpack/unpack.h"
#include "number/facts/facts.h"

namespace lumen::synth {

namespace {

constexpr int64_t kMostBytes = int64_t{512} << 20;
constexpr int64_t kUnitBytes = 16;  // written at once

const DotIndex& rows_of(const DotProblem& p, size_t load) {
  return load == 0 ? p.m : p.n;
}
DotIndex& rows_of(DotProblem& p, size_t load) {
  return load == 0 ? p.m : p.n;
}

// Sets strides: neighbours along `fast`, then along `slow`, then the outer indices.
void lay_out(Prepared& out, size_t load, DotIndex& fast, DotIndex& slow, int number) {
  int64_t elements = 1;
  const auto lay = [&](DotIndex& i) {
    if (i.strides[load] == 0) return;
    i.strides[load] = elements;
    elements *= i.extent;
  };
  lay(fast);
  lay(slow);
  for (auto* indices : {&out.problem.outer_k, &out.problem.outer})
    for (size_t d = indices->size(); d-- > 0;) lay((*indices)[d]);
  DotLoad& made = out.problem.loads[load];
  made.kind = DotLoad::Kind::memory;
  made.format = nullptr;
  made.elements = elements;
  made.offset = 0;
  made.scratch = number;
  out.bytes = elements * scalar_bytes(made.scalar);
}

// For bytes that are contiguous along rows: instructions take bytes that are contiguous along k only.
std::optional<Prepared> transpose_operand(const DotProblem& p, size_t load, int number) {
  const DotIndex &rows = rows_of(p, load), &k = p.k;
  bool aligned = p.loads[load].offset % kUnitBytes == 0 && rows.strides[load] == 1 && rows.extent % kUnitBytes == 0 &&
                 k.extent % kUnitBytes == 0 && k.strides[load] % kUnitBytes == 0;
  for (const auto* indices : {&p.outer_k, &p.outer})
    for (const DotIndex& i : *indices) aligned = aligned && i.strides[load] % kUnitBytes == 0;
  if (!aligned) return {};
  Prepared out{p, 0, 0, true, true};
  lay_out(out, load, out.problem.k, rows_of(out.problem, load), number);
  out.read_bytes = out.bytes;
  if (out.bytes > kMostBytes) return {};
  return out;
}

// Squares of bytes, transposed in registers; adjacent tasks read adjacent memory.
void write_transposed(DotWriter& w, const DotProblem& p, size_t load, const Prepared& to, BufferId out) {
  Builder& b = w.b;
  const DotLoad &l = p.loads[load], &made = to.problem.loads[load];
  const DotIndex &rows = rows_of(p, load), &rows_there = rows_of(to.problem, load);
  constexpr int64_t n = kUnitBytes;
  b.loop(LoopKind::parallel, w.i64(0), w.i64(made.elements / (n * n)), 1, [&](Expr task) {
    Expr rest = task, from = w.i64(l.offset), place = w.i64(0);
    const auto part = [&](const DotIndex& here, const DotIndex& there, int64_t step, int64_t count) {
      if (here.strides[load] == 0) return;
      const Expr x = rest % count * step;
      rest = rest / count;
      from = from + x * here.strides[load];
      place = place + x * there.strides[load];
    };
    // Adjacent tasks read a cache line's worth of rows and write a line's worth of k.
    const int64_t near_rows = std::gcd(rows.extent / n, int64_t{4}), near_k = std::gcd(p.k.extent / n, int64_t{8});
    part(rows, rows_there, n, near_rows);
    part(p.k, to.problem.k, n, near_k);
    part(rows, rows_there, n * near_rows, rows.extent / n / near_rows);
    part(p.k, to.problem.k, n * near_k, p.k.extent / n / near_k);
    for (size_t d = p.outer_k.size(); d-- > 0;) part(p.outer_k[d], to.problem.outer_k[d], 1, p.outer_k[d].extent);
    for (size_t d = p.outer.size(); d-- > 0;) part(p.outer[d], to.problem.outer[d], 1, p.outer[d].extent);
    const VType type{made.scalar, static_cast<int>(n)};
    std::vector<Expr> square;
    for (int64_t i = 0; i < n; ++i) square.push_back(b.load(w.buffer(load), type, from + i * p.k.strides[load], n));
    transpose(b, square);
    for (int64_t i = 0; i < n; ++i) b.store(out, square[i], place + i * rows_there.strides[load], n);
  });
}

// Elements keep the order in which they are written: a task has a unit of them, or a block of the format.
class PrepareKernel {
 public:
  // A problem with a result writes that instead of scratch.
  PrepareKernel(const graph::Graph& g, const DotProblem& p, size_t load, const Prepared& to, const machine::Machine& m)
      : one_(only(p, load, to.problem.loads[load].scratch >= 0)),
        load_(load),
        to_(to),
        m_(m),
        w_(g, one_, "prepare"),
        b_(w_.b) {
    out_ = made().scratch >= 0 ? w_.scratch_param("laid", made().scratch, to.bytes, true) : w_.result();
    unit_ = kUnitBytes / scalar_bytes(made().scalar);
    run_ = packed() ? std::max(one_.loads[load].format->block, unit_) : unit_;
    tasks_ = made().elements / run_;
  }

  Step write() {
    if (to_.transposed) {
      write_transposed(w_, one_, load_, to_, out_);
      return w_.step(fmt::format("turn {} {}", made().elements, load_ == 0 ? "a" : "b"));
    }
    const bool passes = packed() && m_.wave > 1 && run_ % (kBeside * unit_) == 0;
    if (passes)
      write_passing();
    else
      b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(tasks_), 1, [&](Expr task) { write_task(task); });
    return w_.step(fmt::format("{} {} {} as {}{}", made().scratch >= 0 ? "prepare" : "decode", made().elements,
                               made().scratch < 0 ? one_.loads[load_].format->name
                               : load_ == 0       ? "a"
                                                  : "b",
                               scalar_name(made().scalar), passes ? " passed on" : ""));
  }

 private:
  static constexpr int kBeside = 4;  // adjacent lanes that write contiguous memory
  static constexpr int64_t kBlockLanes = 128;

  static DotProblem only(DotProblem p, size_t load, bool scratch) {
    for (size_t i = 0; i < p.loads.size(); ++i)
      if (i != load) p.loads[i].kind = DotLoad::Kind::splat;
    p.epilogue.clear();
    if (scratch) p.result = -1;
    return p;
  }
  const DotLoad& made() const { return to_.problem.loads[load_]; }
  bool packed() const { return one_.loads[load_].kind == DotLoad::Kind::packed; }
  Expr place(Expr task) { return task * (run_ * scalar_bytes(made().scalar)); }

  Expr element(Expr task) {  // of the operand, the first of a task
    const DotIndex &fast = to_.along_k ? one_.k : rows_of(one_, load_),
                   &slow = to_.along_k ? rows_of(one_, load_) : one_.k;
    Expr rest = task / (fast.extent / run_), at = one_.loads[load_].offset + task % (fast.extent / run_) * run_;
    const auto digit = [&](const DotIndex& i) {
      if (i.strides[load_] == 0) return;
      at = at + rest % i.extent * i.strides[load_];
      rest = rest / i.extent;
    };
    digit(slow);
    for (const auto* indices : {&one_.outer_k, &one_.outer})
      for (size_t d = indices->size(); d-- > 0;) digit((*indices)[d]);
    return at;
  }
  std::unique_ptr<Unpack> entered(Expr at) {
    const DotLoad& l = one_.loads[load_];
    auto cursor = std::make_unique<Unpack>(b_, *l.format, w_.buffer(load_), l.rows, l.columns);
    cursor->use(m_);
    cursor->make_of_bytes();
    cursor->enter_row(at / l.columns);
    cursor->enter_block(at / l.format->block, run_ / l.format->block);
    return cursor;
  }
  Expr unit_of(Unpack& cursor, int64_t i) {
    const Expr x = cursor.values(i, unit_);
    return made().scalar == Scalar::f32 ? x : cast(x, made().scalar);
  }

  void write_task(Expr task) {
    const DotLoad& l = one_.loads[load_];
    const Expr at = element(task), to = place(task);
    const auto put = [&](Expr x, int64_t i) { b_.store(out_, x, to + i * scalar_bytes(made().scalar), kUnitBytes); };
    if (!packed()) {
      const VType type{l.scalar, static_cast<int>(unit_)};
      const Expr x = b_.load(w_.buffer(load_), type, at * scalar_bytes(l.scalar), scalar_bytes(l.scalar));
      return put(cast(x, made().scalar), 0);
    }
    const std::unique_ptr<Unpack> cursor = entered(at);
    for (int64_t i = 0; i < run_; i += unit_) put(unit_of(*cursor, i), i);
  }

  // Each lane decodes a block, but adjacent lanes write units of one block next to each other: a store takes time for
  // each memory line it touches.
  void write_passing() {
    const int64_t blocks = (tasks_ + kBlockLanes - 1) / kBlockLanes;
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(blocks), 1, [&](Expr block) {
      b_.loop(LoopKind::lane, w_.i64(0), w_.i64(kBlockLanes), 1, [&](Expr lane) {
        const Expr task = block * kBlockLanes + lane, number = lane % kBeside;
        const Expr first = task - number;
        const auto existing = [&](Expr x) {  // lanes past the last task repeat it
          return tasks_ % kBlockLanes == 0 ? x : min(x, w_.i64(tasks_ - 1));
        };
        const std::unique_ptr<Unpack> cursor = entered(element(existing(task)));
        for (int64_t i = 0; i < run_; i += kBeside * unit_) {
          std::vector<Expr> units;
          for (int64_t u = 0; u < kBeside; ++u) units.push_back(as_words(b_, unit_of(*cursor, i + u * unit_)));
          units = pass_among_lanes(b_, number, 1, std::move(units));
          const Expr inside = (i / unit_ + number) * kUnitBytes;
          for (int64_t u = 0; u < kBeside; ++u)
            b_.store(out_, units[u], place(existing(first + u)) + inside, kUnitBytes);
        }
      });
    });
  }

  DotProblem one_;
  size_t load_;
  const Prepared& to_;
  const machine::Machine& m_;
  DotWriter w_;
  Builder& b_;
  BufferId out_ = -1;
  int64_t unit_ = 1, run_ = 1, tasks_ = 1;
};

// The same for any size.
std::optional<Prepared> laid_out(const DotProblem& p, size_t load, Scalar to, int number) {
  if (p.pick) return {};  // rows are laid out already, and matrices that no row picks need not be
  const DotLoad& l = p.loads[load];
  const int64_t unit = kUnitBytes / scalar_bytes(to);
  const bool packed = l.kind == DotLoad::Kind::packed;
  if (!packed && l.kind != DotLoad::Kind::memory) return {};
  if (l.code && p.k.strides[load] != 1) return transpose_operand(p, load, number);
  if (!packed && (l.scalar == to || !is_float(l.scalar))) return {};
  Prepared out{p, 0, 0, true};
  DotLoad& made = out.problem.loads[load];
  DotIndex &k = out.problem.k, &rows = rows_of(out.problem, load);
  if (packed)
    out.along_k = unpacks_along(p, load, p.k);
  else
    out.along_k = k.strides[load] == 1;
  DotIndex &fast = out.along_k ? k : rows, &slow = out.along_k ? rows : k;
  if (packed ? !unpacks_along(p, load, out.along_k ? p.k : rows_of(p, load)) : fast.strides[load] != 1) return {};
  if (fast.extent % unit != 0 || (packed && l.format->block % unit != 0 && unit % l.format->block != 0)) return {};
  made.scalar = to;
  lay_out(out, load, fast, slow, number);
  const int64_t elements = made.elements;
  out.read_bytes = packed ? elements / l.format->block * l.format->block_bytes : elements * scalar_bytes(l.scalar);
  return out;
}

}  // namespace

std::optional<Prepared> prepare_operand(const DotProblem& p, size_t load, Scalar to, int number) {
  if (p.loads[load].zeros) return {};
  std::optional<Prepared> out = laid_out(p, load, to, number);
  return out && out->bytes <= kMostBytes ? out : std::nullopt;
}

namespace {

// The blob that a group only decodes, all of it in order, with or without rounding; -1 otherwise.
graph::ValueId decoded(const graph::Plan& plan, const graph::Group& group) {
  const graph::Graph& g = plan.graph;
  const graph::ValueId r = group.results[0];
  const graph::Node& n = g[r];
  if (group.results.size() != 1 || group.inputs.size() != 1 || n.op != graph::Op::map_ || n.operands.size() != 1)
    return -1;
  const Formula& f = n.attributes.formula;
  const auto& last = f.nodes[f.outputs[0]];
  const bool casts = last.op == ScalarOp::cast_ && f.nodes[last.args[0]].op == ScalarOp::input && f.nodes.size() == 2;
  graph::ValueId load = n.operands[0];
  while (g[load].op == graph::Op::reshape_) load = g[load].operands[0];
  if (!casts || g[load].op != graph::Op::cast_ || g[load].type.element.format) return -1;
  const graph::ValueId blob = g[load].operands[0];
  return blob == group.inputs[0] && g[blob].type.element.format ? blob : -1;
}

}  // namespace

std::optional<Synthesis> synthesize_decode(const graph::Plan& plan, const graph::Group& group,
                                           const machine::Machine& m) {
  const graph::ValueId blob = m.wave > 1 ? decoded(plan, group) : -1;
  if (blob < 0) return std::nullopt;
  const graph::Graph& g = plan.graph;
  const graph::Type &from = g[blob].type, &to = g[group.results[0]].type;
  if (!from.element.format || from.shape.empty()) return std::nullopt;
  DotProblem p;
  DotLoad l;
  l.kind = DotLoad::Kind::packed;
  l.source = l.value = blob;
  l.format = from.element.format;
  l.columns = from.shape.back().number();
  l.elements = graph::elements(from.shape).number();
  if (l.elements == 0) return std::nullopt;
  l.rows = l.elements / l.columns;
  p.loads = {{}, l};
  p.loads[0].kind = DotLoad::Kind::splat;
  p.m = {1, {0, 0}, 0};
  p.n = {l.rows, {0, l.columns}, l.columns};
  p.k = {l.columns, {0, 1}, 1};
  p.result = group.results[0];
  p.result_scalar = to.element.scalar;
  p.result_bytes = graph::byte_size(to);
  const std::optional<Prepared> made = laid_out(p, 1, to.element.scalar, -1);
  if (!made) return std::nullopt;
  Synthesis out;
  out.steps.push_back(PrepareKernel(g, p, 1, *made, m).write());
  return out;
}

Step write_prepare(const graph::Graph& g, const DotProblem& p, size_t load, const Prepared& to,
                   const machine::Machine& m) {
  return PrepareKernel(g, p, load, to, m).write();
}

DotProblem with_plain_formats(DotProblem p, const machine::Machine& m, bool exact) {
  const auto code = [&](const DotLoad& l) {
    return l.kind == DotLoad::Kind::packed ? machine::code_of(*l.format) : std::nullopt;
  };
  const auto a = code(p.loads[0]), b = code(p.loads[1]);
  if (!exact && a && b && find_matrix(m, Factors{{Scalar::u8, a}, {Scalar::u8, b}}, 32))
    for (size_t i = 0; i < 2; ++i) {
      p.loads[i].kind = DotLoad::Kind::memory;
      p.loads[i].scalar = Scalar::u8;
      p.loads[i].code = i == 0 ? a : b;
      p.loads[i].format = nullptr;
    }
  const bool packed = p.loads[0].kind == DotLoad::Kind::packed && p.loads[1].kind == DotLoad::Kind::packed;
  if (!exact && packed && are_multiplied_as_integers(*p.loads[0].format, *p.loads[1].format, m))
    for (size_t i = 0; i < 2; ++i) {
      p.loads[i].kind = DotLoad::Kind::memory;
      p.loads[i].scalar = Scalar::i8;
      p.loads[i].format = nullptr;
    }
  for (DotLoad& l : p.loads) {
    if (l.kind != DotLoad::Kind::packed) continue;
    const auto scalar = plain_scalar(*l.format);
    if (!scalar) continue;
    l.kind = DotLoad::Kind::memory;
    l.scalar = *scalar;
    l.format = nullptr;
  }
  return p;
}

}  // namespace lumen::synth
