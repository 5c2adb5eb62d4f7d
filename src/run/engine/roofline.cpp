#include "run/engine/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/hash.h"
#include "base/stopwatch.h"
#include "graph/ir/build.h"
#include "kernel/loop/build.h"
#include "number/codec/pattern.h"
#include "run/engine/cache/user_cache.h"
#include "run/engine/gpu_ceilings.h"
#include "run/engine/program/explain.h"
#include "run/engine/program/small_numbers.h"
#include "run/engine/random_inputs.h"

namespace lumen::run {
namespace {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int kChains = 12;     // independent sums: more than latency times throughput, fewer than registers
constexpr int kTileChains = 6;  // two of eight tile registers hold the operands
constexpr int64_t kStreamBytes = int64_t{256} << 20;  // read to measure bandwidth: larger than any cache
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kOutBytes = 8192;                            // written by a task, at least
constexpr int64_t kCopiesBytes = int64_t{192} << 20;           // all copies of a product's weights
constexpr double kTimeOfCeiling = 0.15, kTimeOfProduct = 0.3;  // seconds, at least

// Every task sums a chunk of memory.
loop::Kernel stream_kernel(int lanes) {
  Builder b("ceiling_read");
  const VType vector{Scalar::f32, lanes};
  const int64_t step = lanes * 4;
  const int64_t tasks = kStreamBytes / kChunkBytes;
  const BufferId in = b.param("in", kStreamBytes, false), out = b.param("out", tasks * 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](Expr task) {
    std::vector<BufferId> sums;
    for (int i = 0; i < kChains - 4; ++i) {
      sums.push_back(b.alloc(step));
      b.store(sums.back(), b.real(0, vector), b.i64(0));
    }
    const Expr from = task * kChunkBytes;
    const auto unrolled = std::ssize(sums) * step;
    b.loop(LoopKind::serial, b.i64(0), b.i64(kChunkBytes), unrolled, [&](Expr at) {
      const Expr here = from + at;
      for (size_t i = 0; i < sums.size(); ++i) {
        const Expr x = b.load(in, vector, here + static_cast<int64_t>(i) * step, 32);
        b.store(sums[i], b.load(sums[i], vector, b.i64(0)) + x, b.i64(0));
      }
    });
    Expr all = b.load(sums[0], vector, b.i64(0));
    for (size_t i = 1; i < sums.size(); ++i) all = all + b.load(sums[i], vector, b.i64(0));
    b.store(out, b.fold(ScalarOp::add_, all), task * 64);
  });
  return b.finish();
}

// Independent accumulation chains of one instruction.
struct Chains {
  std::string name;
  VType sum, a, b;
  int count = kChains;
  // For instructions without an accumulator, operands differ between sums and steps: nothing is loop-invariant or
  // common.
  bool reread = false;
  std::function<Expr(Builder&, Expr sum, Expr a, Expr b)> step;
};

constexpr int64_t kRounds = 40, kReads = 256;

loop::Kernel chains_kernel(const Chains& c, int64_t tasks) {
  Builder b(c.name);
  const auto bytes = [](VType t) { return static_cast<int64_t>(t.lanes) * scalar_bytes(t.scalar); };
  const int64_t step = bytes(c.b), reads = c.reread ? kReads : 1;
  const BufferId in = b.param("in", std::max(reads * step, bytes(c.a)), false);
  const int64_t of_task = std::max(kOutBytes, c.count * bytes(c.sum));
  const BufferId out = b.param("out", tasks * of_task, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](Expr task) {
    const int align = std::min<int64_t>(64, bytes(c.sum));
    // Each sum starts with its own data: equal sums would be merged.
    const auto place = [&](int i) { return task * of_task + i * bytes(c.sum); };
    std::vector<BufferId> sums;
    for (int i = 0; i < c.count; ++i) {
      sums.push_back(b.alloc(bytes(c.sum)));
      b.store(sums.back(), b.load(out, c.sum, place(i), align), b.i64(0), 64);
    }
    std::vector<Expr> as;
    for (int i = 0; i < (c.reread ? c.count : 1); ++i) as.push_back(b.load(in, c.a, b.i64(i * bytes(c.a))));
    const auto advance = [&](Expr x) {
      for (size_t i = 0; i < sums.size(); ++i) {
        const Expr before = b.load(sums[i], c.sum, b.i64(0), 64);
        b.store(sums[i], c.step(b, before, as[i % as.size()], x), b.i64(0), 64);
      }
    };
    if (c.reread) {
      b.loop(LoopKind::serial, b.i64(0), b.i64(kRounds), 1, [&](Expr) {
        b.loop(LoopKind::serial, b.i64(0), b.i64(reads * step), step, [&](Expr at) { advance(b.load(in, c.b, at)); });
      });
    } else {
      const Expr x = b.load(in, c.b, b.i64(0), 64);
      b.loop(LoopKind::serial, b.i64(0), b.i64(kRounds * kReads), 1, [&](Expr) { advance(x); });
    }
    for (int i = 0; i < c.count; ++i) b.store(out, b.load(sums[i], c.sum, b.i64(0), 64), place(i), align);
  });
  return b.finish();
}

// Seconds of the fastest of several launches: a ceiling is the undisturbed rate.
double fastest(const CompileContext& context, const loop::Kernel& kernel) {
  CompileReport report;
  const loop::Kernel* one[] = {&kernel};
  void* function = context.cache->get(one, 1, &report)[0];
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> buffers;
  for (const loop::BufferParam& p : kernel.params) {
    memory.push_back(allocate_shared(context.device, p.bytes));
    buffers.push_back(memory.back().get());
    if (!p.written) context.device->copy_in(buffers.back(), small_numbers(p.bytes).data(), p.bytes);
  }
  const bool waits = context.device->is_asynchronous();
  LaunchStatus here;
  const std::shared_ptr<void> there = waits ? allocate_shared(context.device, sizeof here) : nullptr;
  LaunchStatus* const status = waits ? static_cast<LaunchStatus*>(there.get()) : &here;
  const std::unique_ptr<Device::Marks> marks = waits ? context.device->make_marks(2) : nullptr;
  const LaunchConfig launch_config = launch_config_of(kernel, context.device->machine(), false);
  const auto launch = [&] {
    const Stopwatch watch;
    if (marks) marks->set(0);
    context.device->launch(function, buffers, launch_config, status);
    if (marks) marks->set(1);
    context.device->synchronize();
    return marks ? marks->seconds(0, 1) : watch.seconds();
  };
  double best = launch();
  const Stopwatch watch;
  for (int i = 0; i < 3 || watch.seconds() < kTimeOfCeiling; ++i) best = std::min(best, launch());
  return best;
}

const char* kind_of(Scalar operand) {
  switch (operand) {
    case Scalar::u8:
    case Scalar::i8:
      return "int8";
    case Scalar::i16:
    case Scalar::u16:
      return "int16";
    case Scalar::bf16:
      return "bf16";
    case Scalar::f16:
      return "f16";
    default:
      return "f32";
  }
}

}  // namespace

std::vector<CeilingKernel> ceiling_kernels(const machine::Machine& m, int64_t tasks) {
  const int lanes = m.f32_lanes();
  std::vector<CeilingKernel> out;
  out.push_back({"", "read", stream_kernel(lanes), static_cast<double>(kStreamBytes)});
  const auto add = [&](const std::string& row, const char* kind, const Chains& chains, double products) {
    const double steps = static_cast<double>(kRounds * kReads) * chains.count * tasks;
    out.push_back({row, kind, chains_kernel(chains, tasks), 2 * products * steps});
  };
  const VType f32{Scalar::f32, lanes};
  const auto fma = [](Builder& b, Expr sum, Expr x, Expr y) { return loop::fma(x, y, sum); };
  add("", "f32", {"ceiling_f32", f32, f32, f32, kChains, false, fma}, lanes);
  for (const machine::DotRow& d : m.dots) {
    const VType sum{d.acc, d.lanes}, a{d.a, d.lanes * d.k}, x{d.b, d.lanes * d.k};
    const auto step = [&](Builder& b, Expr acc, Expr u, Expr v) {
      if (d.accumulates) return b.inst(d.row, sum, {acc, u, v});
      if (d.pairs.empty()) return acc + b.inst(d.row, sum, {u, v});
      const VType wide{Scalar::i16, 2 * d.lanes};
      std::vector<Expr> operands = {b.inst(d.row, wide, {u, v})};
      if (d.pairs_ones) operands.push_back(b.integer(1, wide));
      return acc + b.inst(d.pairs, sum, operands);
    };
    add(d.row, kind_of(d.a), {"ceiling_" + d.row, sum, a, x, kChains, !d.accumulates, step}, a.lanes);
  }
  for (const machine::DotRow& d : m.squares) {
    const VType sum{d.acc, d.lanes}, a{d.a, d.lanes / 2 * d.k}, x{d.b, d.lanes / 2 * d.k};
    const auto step = [&](Builder& b, Expr acc, Expr u, Expr v) { return b.inst(d.row, sum, {acc, u, v}); };
    add(d.row, kind_of(d.a), {"ceiling_" + d.row, sum, a, x, kChains, false, step}, double(d.lanes) * d.k);
  }
  for (const machine::TileRow& t : m.tiles) {
    const VType sum{t.acc, t.rows * t.columns}, a{t.a, t.rows * t.k}, x{t.b, t.columns * t.k};
    const auto step = [&](Builder& b, Expr acc, Expr u, Expr v) { return b.inst(t.row, sum, {acc, u, v}); };
    const int chains = t.k * scalar_bytes(t.a) == 4 ? m.tile_registers : kTileChains;  // outer products use all
                                                                                       // registers
    add(t.row, kind_of(t.a), {"ceiling_" + t.row, sum, a, x, chains, false, step},
        static_cast<double>(t.rows) * t.columns * t.k);
  }
  return out;
}

double measure_memory(const CompileContext& context) {
  if (context.device->is_asynchronous()) return context.device->measure_copies().value_or(0);
  const loop::Kernel kernel = stream_kernel(context.device->machine().f32_lanes());
  return kStreamBytes / fastest(context, kernel);
}

Ceilings measure_ceilings(const CompileContext& context) {
  Ceilings c;
  if (context.device->is_asynchronous()) c.read_bytes = measure_memory(context);  // by the GPU's own copies
  const machine::Machine& machine = context.device->machine();
  for (const CeilingKernel& k : machine.kind == machine::Kind::gpu ? gpu_ceiling_kernels(machine)
                                                                   : ceiling_kernels(machine, 4 * context.threads)) {
    const double rate = k.work / fastest(context, k.kernel);
    if (!k.row.empty()) {
      c.rows.push_back({k.row, k.kind, rate});
    } else if (std::string_view(k.kind) == "read") {
      c.read_bytes = rate;
    } else {
      c.f32_flops = rate;
      // The cost model's cycles are a CPU's.
      if (machine.kind == machine::Kind::cpu) c.cycles = rate * machine.fma_cycles / (2 * machine.f32_lanes());
    }
  }
  std::stable_sort(c.rows.begin(), c.rows.end(),
                   [](const Ceilings::Row& a, const Ceilings::Row& b) { return a.flops > b.flops; });
  return c;
}

namespace {

// The stored ceiling, and the folder that stores it.
struct StoredCeiling {
  StoredCeiling(Engine& engine, const std::string& kind, const std::string& cache) : folder(open_cache(cache, true)) {
    if (!folder->usable()) return;
    key = hash_text(fmt::format("{} | {} | {} | {} threads", engine.device().describe(), engine.device().identity(),
                                kind, engine.threads()))
              .hex();
    rate = std::strtod(folder->read("ceilings", key).c_str(), nullptr);
    if (!(rate > 0) || !std::isfinite(rate)) rate = 0;
  }
  double measure(Engine& engine, const std::string& kind) {
    const Ceilings ceilings = engine.measure_ceilings();
    rate = std::max(rate, ceilings.f32_flops);
    for (const Ceilings::Row& row : ceilings.rows)
      if (kind != "f32" && row.kind == kind) rate = std::max(rate, row.flops);
    folder->write("ceilings", key, fmt::format("{}", rate));
    return rate;
  }

  std::unique_ptr<SealedFolder> folder;
  std::string key;
  double rate = 0;  // 0: none
};

}  // namespace

double product_ceiling(Engine& engine, const std::string& kind, const std::string& cache) {
  StoredCeiling stored(engine, kind, cache);
  if (stored.rate > 0 || !stored.folder->usable()) return stored.rate;
  return stored.measure(engine, kind);
}

double higher_product_ceiling(Engine& engine, const std::string& kind, const std::string& cache) {
  StoredCeiling stored(engine, kind, cache);
  return stored.folder->usable() ? stored.measure(engine, kind) : 0;
}

ProductTime time_product(Engine& engine, const FormatRef& format, const ProductShape& shape, bool exact,
                         const Ceilings& ceilings) {
  graph::Graph g;
  graph::Builder build(g);
  const auto type = [](std::vector<int64_t> dims, FormatRef f) {
    graph::Type t;
    for (const int64_t d : dims) t.shape.emplace_back(d);
    t.element = {Scalar::f32, std::move(f)};
    return t;
  };
  const graph::Type x_type = type({shape.m, shape.k}, nullptr), w_type = type({shape.n, shape.k}, format);
  const graph::ValueId x = build.input("x", graph::Role::data, x_type);
  graph::ValueId w = build.input("w", graph::Role::parameter, w_type);
  if (format) w = build.cast(w, {Scalar::f32, nullptr});
  g.results = {build.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  CompileOptions options;
  options.exact = exact;
  const std::shared_ptr<Program> program = engine.compile(g, options);

  const auto x_tensor = std::make_shared<DeviceTensor>(engine.device(), x_type);
  const std::vector<float> values = pattern_values(shape.m * shape.k, 2, 1);
  x_tensor->upload(values.data(), x_tensor->bytes());
  program->bind("x", x_tensor);
  std::vector<DeviceTensorRef> copies;
  const int64_t bytes = graph::byte_size(w_type);
  std::vector<uint8_t> blob(bytes);
  if (format) {
    Pattern(*format, shape.k).fill(blob.data(), shape.n);
  } else {
    const std::vector<float> weights = pattern_values(shape.n * shape.k, 1);
    std::memcpy(blob.data(), weights.data(), blob.size());
  }
  for (int64_t all = 0; all < kCopiesBytes || copies.size() < 2; all += bytes) {
    copies.push_back(std::make_shared<DeviceTensor>(engine.device(), w_type));
    copies.back()->upload(blob.data(), bytes);
  }
  std::vector<double> times;
  const Stopwatch watch;
  for (size_t i = 0; i < 4 || watch.seconds() < kTimeOfProduct; ++i) {
    program->bind("w", copies[i % copies.size()]);
    const Stopwatch lap;
    program->run();
    times.push_back(lap.seconds());
  }
  times.erase(times.begin());  // the first touches the memory
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());

  ProductTime out;
  out.seconds = times[times.size() / 2];
  out.flops = 2.0 * shape.m * shape.n * shape.k;
  out.bytes = bytes;
  for (const KernelTime& t : program->times()) out.plan += (out.plan.empty() ? "" : " | ") + t.plan;
  const Bound bound = bound_of(out.plan, out.flops, out.bytes, ceilings);
  out.bound_seconds = bound.seconds;
  out.ceiling = bound.ceiling;
  return out;
}

}  // namespace lumen::run
