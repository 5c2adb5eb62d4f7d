// Attention on one core beside the peak of fused multiply-adds and of reading memory, measured in the same run.
//   bench_attend [MACHINE] [FILTER]      MACHINE defaults to native; FILTER picks lines by a part of their name
//   bench_attend --asm NAME              the assembly of one line's kernels
// Useful work is what the mask lets through: 2 (depth + width) operations for every visible pair of query and key, and
// 10 depth for gradients.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "emit/emit.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/match/access.h"
#include "graph/pass/pass.h"
#include "graph/pipeline/pipeline.h"
#include "kernel/loop/build.h"
#include "kernel/synth/step/step_builder.h"
#include "kernel/synth/synth.h"
#include "number/library/library.h"

namespace lumen {
namespace {

double seconds() {  // time this thread was given
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <typename Run>
double best_time(Run run) {
  run();
  int repeat = 1;
  double best = 1e9;
  for (int round = 0; round < 12; ++round) {
    const double start = seconds();
    for (int i = 0; i < repeat; ++i) run();
    const double time = (seconds() - start) / repeat;
    best = std::min(best, time);
    if (time * repeat < 0.005) repeat = static_cast<int>(0.01 / std::max(time, 1e-8)) + 1;
  }
  return best;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;
Memory memory_of(int64_t bytes) {
  Memory m(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64)));
  std::memset(m.get(), 0, static_cast<size_t>(bytes));
  return m;
}

struct Compiled {
  std::unique_ptr<emit::LoadedModule> module;
  std::vector<emit::CpuKernel> kernels;
};
Compiled compile(const std::vector<loop::Kernel>& kernels, const machine::Machine& m) {
  Compiled c;
  const std::string object = emit::emit(kernels, m, emit::Output::object);
  c.module =
      std::make_unique<emit::LoadedModule>(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
  for (const loop::Kernel& k : kernels) c.kernels.push_back(c.module->find(emit::symbol_name(k)));
  return c;
}

// One task that repeats `step` over `chains` vectors held in registers.
double time_of(const machine::Machine& m, int chains, int64_t rounds, int64_t bytes,
               const std::function<loop::Expr(loop::Builder&, loop::Expr sum, loop::Expr round, int chain)>& step) {
  loop::Builder b("ceiling");
  const loop::VType vector{Scalar::f32, m.f32_lanes()};
  const loop::BufferId data = b.param("data", bytes, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    std::vector<loop::BufferId> sums;
    for (int i = 0; i < chains; ++i) {
      sums.push_back(b.alloc(vector.lanes * 4));
      b.store(sums[i], b.load(data, vector, b.i64(i * vector.lanes * 4)), b.i64(0));
    }
    b.loop(loop::LoopKind::serial, b.i64(0), b.i64(rounds), 1, [&](loop::Expr round) {
      for (int i = 0; i < chains; ++i) b.store(sums[i], step(b, b.load(sums[i], vector, b.i64(0)), round, i), b.i64(0));
    });
    for (int i = 0; i < chains; ++i) b.store(data, b.load(sums[i], vector, b.i64(0)), b.i64(i * vector.lanes * 4));
  });
  const loop::Kernel k = b.finish();
  const Compiled c = compile({k}, m);
  const Memory memory = memory_of(bytes);
  void* buffers[] = {memory.get()};
  int64_t status[2];
  return best_time([&] { c.kernels[0](buffers, 0, 1, status); });
}

double peak_gflops(const machine::Machine& m) {
  constexpr int kChains = 14;
  constexpr int64_t kRounds = 100000;
  const auto step = [](loop::Builder& b, loop::Expr sum, loop::Expr, int) { return fma(sum, sum, sum); };
  return 2.0 * kChains * kRounds * m.f32_lanes() / time_of(m, kChains, kRounds, 1 << 12, step) / 1e9;
}

double read_gbytes(const machine::Machine& m) {
  constexpr int64_t kBytes = 256 << 20;
  const int64_t line = m.f32_lanes() * 4;
  const auto step = [&](loop::Builder& b, loop::Expr sum, loop::Expr round, int chain) {
    const loop::Expr at = round * (8 * line) + chain * line;
    return sum + b.load(0, {Scalar::f32, m.f32_lanes()}, at, static_cast<int>(line));
  };
  return static_cast<double>(kBytes) / time_of(m, 8, kBytes / line / 8, kBytes, step) / 1e9;
}

struct Line {
  std::string name;
  int64_t batch, queries, keys, groups, repeat, depth;
  int64_t start = 0;  // of the first query
  std::string format;
  bool heads_first = false;  // keys and values [batch, groups, keys, depth] instead of [batch, keys, groups, depth]
  bool gradient = false;     // of q, k and v, and nothing else
};

graph::Graph graph_of(const Line& l, const FormatLibrary& formats) {
  graph::Graph g;
  graph::Builder b(g);
  const auto shape = [](const std::vector<int64_t>& dims) { return graph::Shape(dims.begin(), dims.end()); };
  const auto input = [&](const char* name, const std::vector<int64_t>& dims, const std::string& format) {
    graph::Type t{shape(dims), {Scalar::f32, nullptr}};
    if (!format.empty()) t.element.format = formats.get(format);
    const graph::ValueId v = b.input(name, graph::Role::data, t);
    return format.empty() ? v : b.cast(v, {Scalar::f32, nullptr});
  };
  const graph::ValueId q = input("q", {l.batch, l.queries, l.groups, l.repeat, l.depth}, "");
  const int64_t first = l.heads_first ? l.groups : l.keys, second = l.heads_first ? l.keys : l.groups;
  const graph::ValueId k = input("k", {l.batch, first, second, l.depth}, l.format);
  const graph::ValueId v = input("v", {l.batch, first, second, l.depth}, l.format);
  const char* letters = l.heads_first ? "bgsd" : "bsgd";
  const graph::ValueId start = b.input("start", graph::Role::data, {{}, {Scalar::i32, nullptr}});
  const graph::Type type{shape({l.queries, l.keys}), {Scalar::i32, nullptr}};
  Formula mask;
  mask.inputs = {Scalar::i32, Scalar::i32, Scalar::i32};
  mask.outputs = {mask.op(ScalarOp::le_, mask.input(0), mask.op(ScalarOp::add_, mask.input(1), mask.input(2)))};
  const graph::ValueId seen = b.map(mask, {b.iota(type, 1), b.iota(type, 0), start});
  graph::ValueId s = b.contract(q, k, "btgrd", letters, "bgrts") * b.scalar(0.125);
  s = b.select(seen, s, b.scalar(-1e30));
  const graph::ValueId e = b.unary(ScalarOp::exp_, b.sub(s, b.reduce(s, graph::Reduction::max, {4})));
  const graph::ValueId p = b.div(e, b.reduce(e, graph::Reduction::sum, {4}));
  const graph::ValueId o = b.contract(p, v, "bgrts", letters, "btgrd");
  g.results = {o};
  if (l.gradient) {
    const graph::ValueId all = b.reduce(o * q, graph::Reduction::sum, {0, 1, 2, 3, 4});
    g.results = graph::differentiate(g, b.reshape(all, {}), {q, k, v});
  }
  g.result_names.assign(g.results.size(), "r");
  graph::simplify(g);
  return g;
}

void run_line(const Line& l, const machine::Machine& m, const FormatLibrary& formats, double peak, double reading,
              bool assembly) {
  const graph::Plan plan = graph::fuse(graph_of(l, formats));
  std::vector<Memory> values;
  for (const graph::Node& n : plan.graph.nodes) {
    const int64_t bytes = graph::byte_size(n.type);
    values.push_back(memory_of(bytes));
    if (n.type.element.format) continue;  // zero blocks decode to numbers; timing does not depend on them
    if (n.attributes.name == "start") *static_cast<int32_t*>(values.back().get()) = static_cast<int32_t>(l.start);
    if (n.type.element.scalar != Scalar::f32) continue;
    auto* x = static_cast<float*>(values.back().get());
    for (int64_t i = 0; i < bytes / 4; ++i) x[i] = static_cast<float>(i * 37 % 101) / 50.0F - 1;
  }
  std::vector<loop::Kernel> kernels;
  std::vector<size_t> timed;
  std::vector<std::vector<void*>> buffers;
  std::vector<Memory> scratch;
  std::string plans;
  for (const graph::Group& group : plan.groups) {
    const synth::Synthesis s = synth::synthesize(plan, group, m);
    const size_t first = scratch.size();
    for (const int64_t bytes : s.scratch) scratch.push_back(memory_of(bytes));
    for (const synth::Step& step : s.steps) {
      const bool gradient = step.plan.starts_with("attend gradient");
      if (gradient || !l.gradient) timed.push_back(kernels.size());
      kernels.push_back(step.kernel);
      buffers.emplace_back();
      for (const synth::Argument& a : step.arguments)
        buffers.back().push_back(a.from == synth::Argument::From::value
                                     ? values[static_cast<size_t>(graph::storage_of(plan.graph, a.index))].get()
                                     : scratch[first + static_cast<size_t>(a.index)].get());
      plans += fmt::format("  {} ({} tasks)\n", step.plan, step.kernel.tasks);
    }
  }
  if (assembly) {
    fmt::print("{}", emit::emit(kernels, m, emit::Output::assembly));
    return;
  }
  const Compiled c = compile(kernels, m);
  int64_t status[2];
  for (size_t i = 0; i < c.kernels.size(); ++i) c.kernels[i](buffers[i].data(), 0, kernels[i].tasks, status);
  const double time = best_time([&] {
    for (const size_t i : timed) c.kernels[i](buffers[i].data(), 0, kernels[i].tasks, status);
  });
  double pairs = 0;
  for (int64_t t = 0; t < l.queries; ++t) pairs += static_cast<double>(std::min(l.keys, l.start + t + 1));
  const double flops = (l.gradient ? 10.0 : 4.0) * pairs * static_cast<double>(l.batch * l.groups * l.repeat * l.depth);
  const double bytes = 2.0 * static_cast<double>(graph::byte_size(plan.graph[1].type));
  fmt::print("{:<34} {:9.1f} us {:7.1f} GFLOP/s {:5.1f}%  keys and values {:6.2f} GB/s {:5.1f}%\n{}", l.name,
             time * 1e6, flops / time / 1e9, 100 * flops / time / 1e9 / peak, bytes / time / 1e9,
             100 * bytes / time / 1e9 / reading, plans);
  std::fflush(stdout);
}

std::vector<Line> lines() {
  std::vector<Line> out = {{"prefill 512 depth 64", 1, 512, 512, 4, 8, 64, 0, ""},
                           {"prefill 512 depth 128", 1, 512, 512, 4, 8, 128, 0, ""},
                           {"prefill 512 depth 64 f16", 1, 512, 512, 4, 8, 64, 0, "f16"},
                           {"prefill 512 depth 64 q8_0", 1, 512, 512, 4, 8, 64, 0, "q8_0"},
                           {"prefill 512 in cache 2048", 1, 512, 2048, 4, 8, 64, 0, ""},
                           {"train 24x64 depth 32", 24, 64, 64, 4, 1, 32, 0, ""},
                           {"train 8x256 depth 64", 8, 256, 256, 6, 1, 64, 0, ""}};
  out.push_back({"gradient 12x64 depth 32", 12, 64, 64, 4, 1, 32, 0, "", false, true});
  out.push_back({"gradient 8x256 depth 64", 8, 256, 256, 6, 1, 64, 0, "", false, true});
  out.push_back({"gradient 1x1024 depth 64", 1, 1024, 1024, 4, 8, 64, 0, "", false, true});
  for (const char* format : {"", "f16", "bf16", "q8_0"})
    for (const int64_t repeat : {8, 1})
      for (const bool heads_first : {false, true})
        out.push_back({fmt::format("decode 4096 heads {}x{} {}{}", repeat == 8 ? 4 : 32, repeat, format,
                                   heads_first ? " heads first" : ""),
                       1, 1, 4096, repeat == 8 ? 4 : 32, repeat, 64, 4095, format, heads_first});
  out.push_back({"decode 100 of 4096 heads 4x8", 1, 1, 4096, 4, 8, 64, 99, ""});
  return out;
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  using namespace lumen;
  try {
    const bool assembly = argc > 2 && std::string(argv[1]) == "--asm";
    const auto m = machine::find_machine(!assembly && argc > 1 ? argv[1] : "native");
    const std::string filter = argc > 2 ? argv[2] : "";
    const FormatLibrary formats = FormatLibrary::builtin();
    const double peak = assembly ? 1 : peak_gflops(*m), reading = assembly ? 1 : read_gbytes(*m);
    if (!assembly) fmt::print("{}: peak {:.1f} GFLOP/s, reads {:.1f} GB/s on one core\n", m->name, peak, reading);
    for (const Line& line : lines())
      if (assembly ? line.name == filter : line.name.find(filter) != std::string::npos)
        run_line(line, *m, formats, peak, reading, assembly);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n{}\n", e.what(), e.hint());
    return static_cast<int>(e.code());
  }
  return 0;
}
