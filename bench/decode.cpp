// Dots with few rows of activations beside the machine: cycles per weight on one core from the cache, GB/s of packed
// weight out of memory with all threads, and the reading of memory measured in turns with it. Times are those the
// threads were given, so that other work on the machine counts little.
//   bench_decode [MACHINE] [--formats A,B] [--m 1,4] [--shape 2048x2048] [--memory] [--exact] [--asm]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <sstream>
#include <thread>

#include "emit/emit.h"
#include "graph/ir/build.h"
#include "graph/match/access.h"
#include "kernel/loop/build.h"
#include "kernel/synth/dot.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

// Time this thread was given: other work on the machine does not count.
double own_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory memory_of(int64_t bytes) {
  Memory m(std::aligned_alloc(4096, static_cast<size_t>((bytes + 8191) / 4096 * 4096)));
  std::memset(m.get(), 0, static_cast<size_t>(bytes));
  return m;
}

// Cycles a second: a chain of additions takes one cycle each.
double frequency() {
  constexpr int64_t kRounds = 1000000, kChain = 16;
  double best = 1e9;
  for (int round = 0; round < 8; ++round) {
    const double start = own_seconds();
    int64_t x = 0;
    for (int64_t i = 0; i < kRounds; ++i)
      for (int64_t j = 0; j < kChain; ++j) {
        x += j;
        asm volatile("" : "+r"(x));
      }
    best = std::min(best, own_seconds() - start);
  }
  return static_cast<double>(kRounds * kChain) / best;
}

struct Program {
  std::unique_ptr<emit::LoadedModule> module;
  std::vector<emit::CpuKernel> kernels;
  std::vector<int64_t> tasks;
  std::vector<std::vector<void*>> buffers;
  std::vector<Memory> memory;

  void load(const std::vector<loop::Kernel>& list, const machine::Machine& m) {
    const std::string object = emit::emit(list, m, emit::Output::object);
    module =
        std::make_unique<emit::LoadedModule>(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
    for (const loop::Kernel& k : list) {
      kernels.push_back(module->find(emit::symbol_name(k)));
      tasks.push_back(k.tasks);
    }
  }
  // All steps, each split over `threads`; the time of the slowest thread of each, as far as it was given to it.
  double run(int threads) const {
    double time = 0;
    for (size_t i = 0; i < kernels.size(); ++i) {
      std::vector<double> times(static_cast<size_t>(threads), 0.0);
      auto part = [&](int64_t t, int64_t of) {
        int64_t status[2] = {0, 0};
        const double start = own_seconds();
        kernels[i](const_cast<void**>(buffers[i].data()), tasks[i] * t / of, tasks[i] * (t + 1) / of, status);
        times[static_cast<size_t>(t)] = own_seconds() - start;
      };
      std::vector<std::thread> others;
      const int64_t pieces = tasks[i] > 1 ? threads : 1;
      for (int64_t t = 1; t < pieces; ++t) others.emplace_back(part, t, pieces);
      part(0, pieces);
      for (std::thread& t : others) t.join();
      time += *std::max_element(times.begin(), times.end());
    }
    return time;
  }
};

// Adds up vectors of a buffer: as fast as memory can be read.
Program reader(int64_t bytes, const machine::Machine& m) {
  constexpr int64_t kTasks = 64;
  const int lanes = m.vector_bits / 32;
  loop::Builder b("read");
  const int64_t part = bytes / kTasks / 1024 * 1024;
  const loop::BufferId in = b.param("in", bytes, false), out = b.param("out", kTasks * lanes * 4, true);
  const loop::VType vector{Scalar::i32, lanes};
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(kTasks), 1, [&](loop::Expr task) {
    std::vector<loop::BufferId> sums;
    for (int i = 0; i < 4; ++i) {
      sums.push_back(b.alloc(lanes * 4));
      b.store(sums.back(), b.integer(0, vector), b.i64(0));
    }
    const loop::Expr base = task * part;
    b.loop(loop::LoopKind::serial, b.i64(0), b.i64(part), lanes * 16, [&](loop::Expr at) {
      for (int i = 0; i < 4; ++i) {
        const loop::Expr x = b.load(in, vector, base + at + i * lanes * 4, 4);
        b.store(sums[i], b.load(sums[i], vector, b.i64(0)) + x, b.i64(0));
      }
    });
    loop::Expr total = b.load(sums[0], vector, b.i64(0));
    for (int i = 1; i < 4; ++i) total = total + b.load(sums[i], vector, b.i64(0));
    b.store(out, total, task * (lanes * 4));
  });
  Program p;
  p.load({b.finish()}, m);
  p.memory.push_back(memory_of(bytes));
  p.memory.push_back(memory_of(kTasks * lanes * 4));
  p.buffers = {{p.memory[0].get(), p.memory[1].get()}};
  return p;
}

struct Dot {
  Program program;
  std::string plan, assembly;
  double weights = 0, bytes = 0;
};

graph::Type type_of(std::vector<int64_t> dims, FormatRef format = nullptr) {
  graph::Type t;
  for (int64_t d : dims) t.shape.emplace_back(d);
  t.element.format = std::move(format);
  return t;
}

// A row of numbers, again and again: some formats make numbers of zeros that are slow to multiply with.
void fill(const Format& f, int64_t rows, int64_t columns, uint8_t* blob) {
  if (!f.encodes()) return;
  std::vector<float> x;
  for (int64_t i = 0; i < columns; ++i) x.push_back(static_cast<float>(i * 41 % 107) / 53.0F - 1);
  const std::vector<uint8_t> one = encode(f, x, 1, columns);
  const BlobLayout from = blob_layout(f, 1, columns), to = blob_layout(f, rows, columns);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(blob + to.section[0] + r * to.row_stride, one.data() + from.section[0],
                static_cast<size_t>(to.row_stride));
    if (f.row_bytes > 0)
      std::memcpy(blob + to.section[1] + r * f.row_bytes, one.data() + from.section[1],
                  static_cast<size_t>(f.row_bytes));
  }
}

Dot make_dot(const FormatRef& f, int64_t m, int64_t n, int64_t k, bool exact, bool assembly,
             const machine::Machine& target) {
  graph::Plan plan;
  graph::Builder build(plan.graph);
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  const graph::ValueId a = build.input("a", graph::Role::data, type_of({m, k}));
  const graph::ValueId w = build.input("w", graph::Role::parameter, type_of({n, k}, f));
  const graph::ValueId b = build.cast(w, {Scalar::f32, nullptr});
  group.inputs = {a, w};
  group.root = build.contract(a, b, "mk", "nk", "mn");
  group.nodes = {b, group.root};
  group.results = {group.root};
  plan.groups = {group};
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], target, {.exact = exact});
  std::vector<loop::Kernel> kernels;
  for (const synth::Step& step : s.steps) kernels.push_back(step.kernel);
  Dot d;
  d.plan = s.steps.back().plan;
  if (assembly) {
    d.assembly = emit::emit(kernels, target, emit::Output::assembly);
    return d;
  }
  d.program.load(kernels, target);
  for (const graph::Node& node : plan.graph.nodes) {
    d.program.memory.push_back(memory_of(graph::byte_size(node.type)));
    if (node.type.element.format) {
      fill(*f, n, k, static_cast<uint8_t*>(d.program.memory.back().get()));
      continue;
    }
    float* x = static_cast<float*>(d.program.memory.back().get());
    for (int64_t i = 0; i < graph::byte_size(node.type) / 4; ++i) x[i] = static_cast<float>(i * 37 % 101) / 50.0F - 1;
  }
  const size_t first = d.program.memory.size();
  for (int64_t bytes : s.scratch) d.program.memory.push_back(memory_of(bytes));
  for (const synth::Step& step : s.steps) {
    d.program.buffers.emplace_back();
    for (const synth::Argument& arg : step.arguments) {
      const size_t at = static_cast<size_t>(arg.index) + (arg.from == synth::Argument::From::value ? 0 : first);
      d.program.buffers.back().push_back(d.program.memory[at].get());
    }
  }
  d.weights = static_cast<double>(n) * static_cast<double>(k);
  d.bytes = static_cast<double>(graph::byte_size(plan.graph[w].type));
  return d;
}

// Best of several timings, each at least a few milliseconds long.
double best_time(const Program& p) {
  p.run(1);
  int repeat = 1;
  double best = 1e9;
  for (int round = 0; round < 12; ++round) {
    const double start = own_seconds();
    for (int i = 0; i < repeat; ++i) p.run(1);
    const double time = (own_seconds() - start) / repeat;
    best = std::min(best, time);
    if (time * repeat < 0.003) repeat = static_cast<int>(0.005 / std::max(time, 1e-8)) + 1;
  }
  return best;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

struct Arguments {
  std::string machine = "native";
  std::vector<std::string> formats;
  std::vector<int64_t> rows{1};
  int64_t n = 512, k = 2048;
  bool memory = false, exact = false, assembly = false;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--formats") {
      a.formats = split(value, ',');
      ++i;
    } else if (arg == "--m") {
      a.rows.clear();
      for (const std::string& m : split(value, ',')) a.rows.push_back(std::stoll(m));
      ++i;
    } else if (arg == "--shape") {
      const auto dims = split(value, 'x');
      a.n = std::stoll(dims.at(0));
      a.k = std::stoll(dims.at(1));
      ++i;
    } else if (arg == "--memory") {
      a.memory = true;
    } else if (arg == "--exact") {
      a.exact = true;
    } else if (arg == "--asm") {
      a.assembly = true;
    } else {
      a.machine = arg;
    }
  }
  return a;
}

void print_memory(const Dot& dot, const Program& read, double read_bytes) {
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<double> speed, ratio, ceiling;
  for (int round = 0; round < 15; ++round) {
    const double limit = read_bytes / read.run(threads);
    const double got = dot.bytes / dot.program.run(threads);
    speed.push_back(got / 1e9);
    ceiling.push_back(limit / 1e9);
    ratio.push_back(got / limit);
  }
  fmt::print("  memory {:6.2f} GB/s of {:6.2f}, ratio {:.2f}", median(speed), median(ceiling), median(ratio));
}

void run(const Arguments& a) {
  const auto target = machine::find_machine(a.machine);
  const FormatLibrary library = FormatLibrary::builtin();
  const double hertz = a.assembly ? 0 : frequency();
  constexpr int64_t kReadBytes = 256 << 20;
  std::unique_ptr<Program> read;
  if (a.memory) read = std::make_unique<Program>(reader(kReadBytes, *target));
  if (!a.assembly) fmt::print("{}, {:.2f} GHz, {} x {}\n", target->name, hertz / 1e9, a.n, a.k);
  for (const FormatRef& f : library.all()) {
    if (!a.formats.empty() && std::find(a.formats.begin(), a.formats.end(), f->name) == a.formats.end()) continue;
    if (a.formats.empty() && f->block == 1 && f->fields.size() == 1 && f->block_bytes == 0) continue;
    if (a.k % f->block != 0) continue;
    for (int64_t m : a.rows) {
      const Dot dot = make_dot(f, m, a.n, a.k, a.exact, a.assembly, *target);
      if (a.assembly) {
        fmt::print("# {}\n{}", dot.plan, dot.assembly);
        continue;
      }
      const double time = best_time(dot.program);
      fmt::print("{:<16} m {} {:5.2f} bits  {:6.3f} cycles/weight {:7.2f} GB/s", f->name, m, f->bits_per_weight(),
                 time * hertz / dot.weights, dot.bytes / time / 1e9);
      if (a.memory) {
        const int64_t rows = std::max<int64_t>(a.n, (192 << 20) * a.n / static_cast<int64_t>(dot.bytes));
        print_memory(make_dot(f, m, rows, a.k, a.exact, false, *target), *read, kReadBytes);
      }
      fmt::print("  {}\n", dot.plan);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  try {
    lumen::run(lumen::parse(argc, argv));
  } catch (const lumen::Error& e) {
    fmt::print(stderr, "{}\n{}\n", e.what(), e.hint());
    return static_cast<int>(e.code());
  }
  return 0;
}
