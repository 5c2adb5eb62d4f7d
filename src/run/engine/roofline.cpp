#include "run/engine/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "graph/ir/build.h"
#include "kernel/loop/build.h"
#include "number/pattern.h"
#include "run/engine/explain.h"

namespace lumen::run {
namespace {

using loop::BufferId;
using loop::Builder;
using loop::LoopKind;
using loop::ValueId;
using loop::VType;

constexpr int kChains = 12;  // independent sums: more than latency times throughput, fewer than registers
constexpr int64_t kStreamBytes = int64_t{256} << 20;  // read for the bandwidth: no cache holds it
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kOutBytes = 64 * 64;                         // written by a task
constexpr int64_t kCopiesBytes = int64_t{192} << 20;           // all copies of a product's weights
constexpr double kTimeOfCeiling = 0.15, kTimeOfProduct = 0.3;  // seconds, at least

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Every task adds up a chunk of memory.
loop::Kernel stream_kernel(int lanes) {
  Builder b("ceiling_read");
  const VType vector{Scalar::f32, lanes};
  const int64_t step = lanes * 4;
  const int64_t tasks = kStreamBytes / kChunkBytes;
  const BufferId in = b.param("in", kStreamBytes, false), out = b.param("out", tasks * 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](ValueId task) {
    std::vector<BufferId> sums;
    for (int i = 0; i < kChains - 4; ++i) {
      sums.push_back(b.alloc(step));
      b.store(sums.back(), b.real(0, vector), b.i64(0));
    }
    const ValueId from = b.mul(task, b.i64(kChunkBytes));
    const auto unrolled = static_cast<int64_t>(sums.size()) * step;
    b.loop(LoopKind::serial, b.i64(0), b.i64(kChunkBytes), unrolled, [&](ValueId at) {
      const ValueId here = b.add(from, at);
      for (size_t i = 0; i < sums.size(); ++i) {
        const ValueId x = b.load(in, vector, b.add(here, b.i64(static_cast<int64_t>(i) * step)), 32);
        b.store(sums[i], b.add(b.load(sums[i], vector, b.i64(0)), x), b.i64(0));
      }
    });
    ValueId all = b.load(sums[0], vector, b.i64(0));
    for (size_t i = 1; i < sums.size(); ++i) all = b.add(all, b.load(sums[i], vector, b.i64(0)));
    b.store(out, b.fold(ScalarOp::add_, all), b.mul(task, b.i64(64)));
  });
  return b.finish();
}

// kChains sums go through `rounds` x `reads` steps; one operand is read anew in each, so that nothing is invariant.
template <typename Step>
loop::Kernel chains_kernel(const std::string& name, VType sum, VType a, VType b_type, int64_t tasks, int64_t rounds,
                           Step step) {
  constexpr int64_t kReads = 256;
  Builder b(name);
  const auto bytes = [](VType t) { return static_cast<int64_t>(t.lanes) * scalar_bytes(t.scalar); };
  const BufferId in = b.param("in", kReads * bytes(b_type), false), out = b.param("out", tasks * kOutBytes, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](ValueId task) {
    const ValueId mine = b.mul(task, b.i64(kOutBytes));
    std::vector<BufferId> sums;
    std::vector<ValueId> as;
    for (int i = 0; i < kChains; ++i) {
      sums.push_back(b.alloc(bytes(sum)));
      b.store(sums.back(), b.load(out, sum, mine), b.i64(0));
      as.push_back(b.load(in, a, b.i64(i * bytes(a))));
    }
    b.loop(LoopKind::serial, b.i64(0), b.i64(rounds), 1, [&](ValueId) {
      b.loop(LoopKind::serial, b.i64(0), b.i64(kReads * bytes(b_type)), bytes(b_type), [&](ValueId at) {
        const ValueId x = b.load(in, b_type, at);
        for (int i = 0; i < kChains; ++i) {
          const auto s = static_cast<size_t>(i);
          b.store(sums[s], step(b, b.load(sums[s], sum, b.i64(0)), as[s], x), b.i64(0));
        }
      });
    });
    ValueId all = b.load(sums[0], sum, b.i64(0));
    for (size_t i = 1; i < sums.size(); ++i) all = b.add(all, b.load(sums[i], sum, b.i64(0)));
    b.store(out, all, mine);
  });
  return b.finish();
}

// Seconds of the fastest of several launches: the ceiling is what the machine can do undisturbed.
double fastest(const Workshop& shop, const loop::Kernel& kernel) {
  CompileReport report;
  const loop::Kernel* one[] = {&kernel};
  void* function = reinterpret_cast<void*>(shop.cache->get(one, 1, &report)[0]);
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> buffers;
  for (const loop::BufferParam& p : kernel.params) {
    memory.push_back(allocate_shared(shop.device, p.bytes));
    buffers.push_back(memory.back().get());
    if (!p.written) std::memset(buffers.back(), 0x3c, static_cast<size_t>(p.bytes));  // small numbers of every type
  }
  LaunchStatus status;
  const auto launch = [&] {
    const auto start = std::chrono::steady_clock::now();
    shop.device->launch(function, buffers.data(), kernel.tasks, &status);
    shop.device->synchronize();
    return seconds_since(start);
  };
  double best = launch();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3 || seconds_since(start) < kTimeOfCeiling; ++i) best = std::min(best, launch());
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

Ceilings measure_ceilings(const Workshop& shop) {
  const machine::Machine& m = shop.device->machine();
  const int64_t tasks = 4 * shop.threads;
  constexpr int64_t kRounds = 40;
  constexpr double kSteps = static_cast<double>(kChains) * 256 * kRounds;
  const int lanes = m.f32_lanes();
  Ceilings c;
  c.read_bytes = static_cast<double>(kStreamBytes) / fastest(shop, stream_kernel(lanes));
  const VType f32{Scalar::f32, lanes};
  c.f32_flops = 2.0 * lanes * kSteps * static_cast<double>(tasks) /
                fastest(shop, chains_kernel("ceiling_f32", f32, f32, f32, tasks, kRounds,
                                            [](Builder& b, ValueId sum, ValueId x, ValueId y) {
                                              return b.op(ScalarOp::fma_, x, y, sum);
                                            }));
  for (const machine::DotRow& d : m.dots) {
    const VType acc{d.acc, d.lanes}, a{d.a, d.lanes * d.k}, x{d.b, d.lanes * d.k};
    const loop::Kernel kernel = chains_kernel("ceiling_" + d.row, acc, a, x, tasks, kRounds,
                                              [&](Builder& b, ValueId sum, ValueId u, ValueId v) {
                                                if (d.accumulates) return b.inst(d.row, acc, {sum, u, v});
                                                if (d.pairs.empty()) return b.add(sum, b.inst(d.row, acc, {u, v}));
                                                const VType wide{Scalar::i16, 2 * d.lanes};
                                                std::vector<ValueId> operands = {b.inst(d.row, wide, {u, v})};
                                                if (d.pairs_ones) operands.push_back(b.integer(1, wide));
                                                return b.add(sum, b.inst(d.pairs, acc, operands));
                                              });
    const double flops = 2.0 * d.lanes * d.k * kSteps * static_cast<double>(tasks) / fastest(shop, kernel);
    c.rows.push_back({d.row, kind_of(d.a), flops});
  }
  std::stable_sort(c.rows.begin(), c.rows.end(),
                   [](const Ceilings::Row& a, const Ceilings::Row& b) { return a.flops > b.flops; });
  return c;
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
  std::vector<uint8_t> blob(static_cast<size_t>(bytes));
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
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < 4 || seconds_since(start) < kTimeOfProduct; ++i) {
    program->bind("w", copies[i % copies.size()]);
    const auto begin = std::chrono::steady_clock::now();
    program->run();
    times.push_back(seconds_since(begin));
  }
  times.erase(times.begin());  // the first touches memory
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());

  ProductTime out;
  out.seconds = times[times.size() / 2];
  out.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  out.bytes = static_cast<double>(bytes);
  for (const KernelTime& t : program->times()) out.plan += (out.plan.empty() ? "" : " | ") + t.plan;
  const Bound bound = bound_of(out.plan, out.flops, out.bytes, ceilings);
  out.bound_seconds = bound.seconds;
  out.ceiling = bound.ceiling;
  return out;
}

}  // namespace lumen::run
