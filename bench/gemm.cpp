// GFLOP/s of dot kernels on one core beside the peak of their instruction measured in the same run.
//   bench_gemm [MACHINE] [FILTER]      MACHINE defaults to native; FILTER picks lines by a part of their name
//   bench_gemm --asm NAME [MACHINE]    the assembly of one line's kernels
//   bench_gemm --bids [MACHINE] [FILTER] [--cost NAME=VALUE ..]    what every family of kernels bids beside the time it
//     takes, for bench/fit_costs.py; --predict instead: without running; --cost: by another table of costs
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>

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
double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Best of several timings, each at least a few milliseconds long.
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

struct Aligned {
  explicit Aligned(int64_t bytes) : data(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  void* data;
};

struct Compiled {
  std::unique_ptr<emit::LoadedModule> module;
  std::vector<emit::CpuKernel> kernels;
  double seconds = 0;
};

Compiled compile(const std::vector<loop::Kernel>& kernels, const machine::Machine& m) {
  Compiled c;
  const double start = seconds();
  const std::string object = emit::emit(kernels, m, emit::Output::object);
  c.module =
      std::make_unique<emit::LoadedModule>(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
  for (const loop::Kernel& k : kernels) c.kernels.push_back(c.module->find(emit::symbol_name(k)));
  c.seconds = seconds() - start;
  return c;
}

// Independent chains of one instruction, nothing else: what the core can do at best, in GFLOP/s. An empty row means f32
// fused multiply-adds.
double peak_gflops(const machine::Machine& m, const std::string& row = "") {
  constexpr int64_t kRounds = 20000;
  loop::VType sum{Scalar::f32, m.f32_lanes()}, code = sum;
  double products = sum.lanes;
  int chains = 14;
  const machine::DotRow* dot = nullptr;
  for (const machine::DotRow& d : m.dots)
    if (d.row == row) {
      dot = &d;
      sum = {d.acc, d.lanes};
      code = {d.a, d.lanes * d.k};
      products = code.lanes;
    }
  for (const machine::TileRow& t : m.tiles)
    if (t.row == row) {
      sum = {t.acc, t.rows * t.columns};
      code = {t.a, t.rows * t.k};
      products = static_cast<double>(t.rows) * t.columns * t.k;
      chains = 6;
    }
  if (m.vector_registers < 32) chains = std::min(chains, 12);
  if (dot && !dot->accumulates) return 0;  // a chain of instructions, not one
  const int64_t bytes = int64_t{sum.lanes} * scalar_bytes(sum.scalar);
  loop::Builder b("peak");
  const loop::BufferId out = b.param("out", chains * bytes, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    std::vector<loop::BufferId> sums;
    for (int i = 0; i < chains; ++i) {
      sums.push_back(b.alloc(bytes));
      b.store(sums.back(), b.load(out, sum, b.i64(i * bytes), 64), b.i64(0), 64);
    }
    const loop::Expr x = b.load(out, code, b.i64(0), 64);
    // Apart from x: the matrix unit refuses one tile as both operands.
    const loop::Expr y = b.load(out, dot ? loop::VType{dot->b, code.lanes} : code, b.i64(bytes), 64);
    b.loop(loop::LoopKind::serial, b.i64(0), b.i64(kRounds), 1, [&](loop::Expr) {
      for (loop::BufferId s : sums) {
        const loop::Expr before = b.load(s, sum, b.i64(0), 64);
        b.store(s, row.empty() ? fma(x, x, before) : b.inst(row, sum, {before, x, y}), b.i64(0), 64);
      }
    });
    for (int i = 0; i < chains; ++i)
      b.store(out, b.load(sums[static_cast<size_t>(i)], sum, b.i64(0), 64), b.i64(i * bytes), 64);
  });
  const loop::Kernel k = b.finish();
  Compiled c = compile({k}, m);
  Aligned memory(k.params[0].bytes);
  void* buffers[] = {memory.data};
  int64_t status[2];
  return 2.0 * chains * kRounds * products / best_time([&] { c.kernels[0](buffers, 0, 1, status); }) / 1e9;
}

using Peaks = std::map<std::string, double>;  // by row; "" for f32 fused multiply-adds

Peaks measure_peaks(const machine::Machine& m) {
  Peaks peaks{{"", peak_gflops(m)}};
  for (const machine::DotRow& d : m.dots)
    if (const double peak = peak_gflops(m, d.row); peak > 0) peaks[d.row] = peak;
  for (const machine::TileRow& t : m.tiles) peaks[t.row] = peak_gflops(m, t.row);
  return peaks;
}

// The peak of the instruction a plan names.
double peak_of(const Peaks& peaks, const std::string& plan) {
  double found = peaks.at("");
  for (const auto& [row, peak] : peaks)
    if (!row.empty() && plan.find(row) != std::string::npos) found = peak;
  return found;
}

struct Line {
  std::string name;
  std::vector<int64_t> a, b;
  std::string ia, ib, ir;
  std::string format;  // of b
  bool exact = true;
  Scalar scalar = Scalar::f32;  // of operands without a format
  int images = -1;              // operand that is images [n, h, w, c], read as windows [n, h, i, v, j, c]
  int64_t window = 3;           // of so many elements each way
};

graph::Type type_of(const std::vector<int64_t>& dims, Scalar scalar, FormatRef format = nullptr) {
  graph::Type t;
  t.element.scalar = scalar;
  for (int64_t d : dims) t.shape.emplace_back(d);
  t.element.format = std::move(format);
  return t;
}

graph::ValueId windows_of(graph::Builder& build, graph::ValueId images, int64_t window) {
  const graph::Shape from = build.type(images).shape;
  const graph::Dim down(from[1].number() - window + 1), across(from[2].number() - window + 1), each(window);
  const std::vector<int64_t> moves = {1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1};
  return build.windows(images, {0, 0, 0, 0}, moves, {from[0], down, each, across, each, from[3]});
}

graph::Plan plan_of(const Line& line, const FormatLibrary& formats) {
  graph::Plan plan;
  graph::Builder build(plan.graph);
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  graph::ValueId a = build.input("a", graph::Role::data, type_of(line.a, line.scalar));
  const FormatRef format = line.format.empty() ? nullptr : formats.find(line.format);
  graph::ValueId b = build.input("b", graph::Role::parameter, type_of(line.b, line.scalar, format));
  group.inputs = {a, b};
  if (line.images >= 0) {
    graph::ValueId& images = line.images == 0 ? a : b;
    images = windows_of(build, images, line.window);
    group.nodes.push_back(images);
  }
  if (format) {
    b = build.cast(b, {Scalar::f32, nullptr});
    group.nodes.push_back(b);
  }
  group.root = build.contract(a, b, line.ia, line.ib, line.ir);
  group.nodes.push_back(group.root);
  group.results = {group.root};
  plan.groups = {group};
  return plan;
}

// Kernels of a line, ready to run.
class Runnable {
 public:
  Runnable(const graph::Plan& plan, const synth::Synthesis& s, const machine::Machine& m) {
    for (const synth::Step& step : s.steps) kernels_.push_back(step.kernel);
    for (const graph::Node& n : plan.graph.nodes) {
      const int64_t bytes = graph::byte_size(n.type);
      values_.push_back(std::make_unique<Aligned>(bytes));
      if (n.type.element.format || n.type.element.scalar != Scalar::f32)
        continue;  // zeros: timing does not depend on them
      float* x = static_cast<float*>(values_.back()->data);
      for (int64_t i = 0; i < bytes / 4; ++i) x[i] = static_cast<float>(i * 37 % 101) / 50.0F - 1;
    }
    for (int64_t bytes : s.scratch) scratch_.push_back(std::make_unique<Aligned>(bytes));
    compiled_ = compile(kernels_, m);
    for (const synth::Step& step : s.steps) {
      buffers_.emplace_back();
      for (const synth::Argument& a : step.arguments)
        buffers_.back().push_back(
            (a.from == synth::Argument::From::value ? values_ : scratch_)[static_cast<size_t>(a.index)]->data);
    }
  }
  double time() {
    return best_time([&] {
      int64_t status[2];
      for (size_t i = 0; i < kernels_.size(); ++i)
        compiled_.kernels[i](buffers_[i].data(), 0, kernels_[i].tasks, status);
    });
  }
  double compile_seconds() const { return compiled_.seconds; }

 private:
  std::vector<loop::Kernel> kernels_;
  std::vector<std::unique_ptr<Aligned>> values_, scratch_;
  Compiled compiled_;
  std::vector<std::vector<void*>> buffers_;
};

void print_assembly(const Line& line, const machine::Machine& m, const FormatLibrary& formats) {
  const graph::Plan plan = plan_of(line, formats);
  std::vector<loop::Kernel> kernels;
  for (const synth::Step& step : synth::synthesize_dot(plan, plan.groups[0], m, {.exact = line.exact}).steps)
    kernels.push_back(step.kernel);
  fmt::print("{}", emit::emit(kernels, m, emit::Output::assembly));
}

void run_line(const Line& line, const machine::Machine& m, const FormatLibrary& formats, const Peaks& peaks) {
  const graph::Plan plan = plan_of(line, formats);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {.exact = line.exact});
  Runnable c(plan, s, m);
  const double time = c.time();
  double flops = 0;
  for (const synth::Step& step : s.steps) flops += step.flops;
  const double gflops = flops / time / 1e9;
  const double weight = static_cast<double>(graph::byte_size(plan.graph[1].type)) / time / 1e9;
  fmt::print("{:<34} {:8.1f} us {:7.1f} GFLOP/s {:5.1f}% b {:6.1f} GB/s  {} tasks, compiled {:.0f} ms: {}\n", line.name,
             time * 1e6, gflops, 100 * gflops / peak_of(peaks, s.steps.back().plan), weight,
             s.steps.back().kernel.tasks, c.compile_seconds() * 1e3, s.steps.back().plan);
  std::fflush(stdout);
}

// "bid LINE | FAMILY | CYCLES | SECONDS | PLAN"; seconds are 0 where nothing runs.
void print_bids(const Line& line, const machine::Machine& m, const FormatLibrary& formats, bool runs) {
  const graph::Plan plan = plan_of(line, formats);
  for (const auto& [bid, s] : synth::synthesize_bids(plan, plan.groups[0], m, {.exact = line.exact}, true)) {
    const double time = runs ? Runnable(plan, s, m).time() : 0;
    fmt::print("bid {} | {} | {:.8g} | {:.6g} | {}\n", line.name, bid.family, bid.cycles, time, bid.plan);
    std::fflush(stdout);
  }
}

constexpr const char* kFormats[] = {"q8_0", "q4_0",  "q4_k",  "q6_k",     "q3_k", "q5_k", "iq4_nl",
                                    "nf4",  "mxfp4", "nvfp4", "fp8_e4m3", "f16",  "bf16", "int8_row"};

std::vector<Line> lines(const FormatLibrary& formats) {
  std::vector<Line> out;
  auto forward = [&](int64_t m, int64_t n, int64_t k) {
    out.push_back({fmt::format("y=xw' {}x{}x{}", m, n, k), {m, k}, {n, k}, "mk", "nk", "mn", "", true});
  };
  auto backward_x = [&](int64_t m, int64_t n, int64_t k) {  // dx[m, k] = dy[m, n] w[n, k]
    out.push_back({fmt::format("dx=dyw {}x{}x{}", m, k, n), {m, n}, {n, k}, "mn", "nk", "mk", "", true});
  };
  auto backward_w = [&](int64_t m, int64_t n, int64_t k) {  // dw[n, k] = dy[m, n] x[m, k]
    out.push_back({fmt::format("dw=dy'x {}x{}x{}", n, k, m), {m, n}, {m, k}, "mn", "mk", "nk", "", true});
  };
  for (int64_t n : {256, 512, 1024, 2048}) {
    forward(n, n, n);
    backward_x(n, n, n);
    backward_w(n, n, n);
  }
  for (auto [n, k] : {std::pair<int64_t, int64_t>{384, 128}, {128, 128}, {65, 128}, {512, 128}, {128, 512}}) {
    forward(768, n, k);
    backward_x(768, n, k);
    backward_w(768, n, k);
  }
  // Convolutions, and their gradients by images (whose weights lie backwards) and by weights.
  for (auto [side, c] : {std::pair<int64_t, int64_t>{32, 16}, {16, 32}, {8, 64}}) {
    const std::vector<int64_t> padded{128, side + 2, side + 2, c}, plain{128, side, side, c};
    const std::string shape = fmt::format("128x{}x{}x{} 3x3", side, side, c);
    out.push_back({"conv y " + shape, padded, {c, 3, 3, c}, "nhivjc", "oijc", "nhvo", ""});
    out.push_back({"conv dx " + shape, padded, {3, 3, c, c}, "nhivjo", "ijoc", "nhvc", ""});
    out.push_back({"conv dw " + shape, plain, padded, "nhvo", "nhivjc", "oijc", ""});
    for (size_t k = out.size() - 3; k < out.size(); ++k) out[k].images = k + 1 == out.size() ? 1 : 0;
  }
  out.push_back({"scores 48x64x64x32", {48, 64, 32}, {48, 64, 32}, "btd", "bsd", "bts", "", true});
  out.push_back({"values 48x64x32x64", {48, 64, 64}, {48, 64, 32}, "bts", "bsd", "btd", "", true});
  out.push_back({"dprobs 48x64x64x32", {48, 64, 32}, {48, 64, 32}, "btd", "bsd", "bts", "", true});
  out.push_back({"dvalues 48x64x32x64", {48, 64, 64}, {48, 64, 32}, "bts", "btd", "bsd", "", true});
  forward(1, 4096, 4096);
  forward(4, 4096, 4096);
  for (auto [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{2048, 2048, 2048}, {512, 4096, 4096}}) {
    if (m != 2048) forward(m, n, k);
    const std::string shape = fmt::format("{}x{}x{}", m, n, k);
    out.push_back({"bf16 y=xw' " + shape, {m, k}, {n, k}, "mk", "nk", "mn", "", true, Scalar::bf16});
    out.push_back({"bf16 dx=dyw " + shape, {m, k}, {k, n}, "mk", "kn", "mn", "", true, Scalar::bf16});
    out.push_back({"bf16 dw=dy'x " + shape, {k, m}, {k, n}, "km", "kn", "mn", "", true, Scalar::bf16});
  }
  for (const char* format : kFormats) {
    if (!formats.find(format)) continue;
    for (int64_t m : {1, 2, 4, 32, 512})
      for (bool exact : {true, false})
        out.push_back({fmt::format("{} {}x4096x4096{}", format, m, exact ? " exact" : ""),
                       {m, 4096},
                       {4096, 4096},
                       "mk",
                       "nk",
                       "mn",
                       format,
                       exact});
    out.push_back(
        {fmt::format("{} dx 256x4096x1024", format), {256, 1024}, {1024, 4096}, "mn", "nk", "mk", format, true});
  }
  return out;
}

}  // namespace
}  // namespace lumen

namespace lumen {
namespace {

int bench_gemm(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, double>> costs;
  bool assembly = false, bids = false, predict = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--asm")
      assembly = true;
    else if (word == "--bids")
      bids = true;
    else if (word == "--predict")
      predict = true;
    else if (word == "--cost" && i + 1 < arguments.size()) {
      const std::string& cost = arguments[++i];
      const size_t at = cost.find('=');
      if (at == std::string::npos) throw usage_error("--cost takes NAME=VALUE, not '{}'", cost);
      costs.emplace_back(cost.substr(0, at), std::strtod(cost.c_str() + at + 1, nullptr));
    } else {
      words.push_back(word);
    }
  }
  const auto word = [&](size_t i) { return i < words.size() ? words[i] : std::string(); };
  const std::string name = word(assembly ? 1 : 0), filter = word(assembly ? 0 : 1);
  machine::Machine m = *machine::find_machine(name.empty() ? "native" : name);
  for (const auto& [cost, value] : costs) {
    double* place = m.costs.find(cost);
    if (!place) throw usage_error("no cost is called '{}'", cost);
    *place = value;
  }
  if (!assembly && !predict && !machine::runs_here(m))
    throw user_error("this processor does not run code for {}", m.name);
  const FormatLibrary formats = FormatLibrary::builtin();
  const Peaks peaks = assembly || predict ? Peaks{} : measure_peaks(m);
  for (const auto& [row, peak] : peaks)
    fmt::print("{}: peak of {} {:.1f} GFLOP/s on one core\n", m.name, row.empty() ? "f32 fma" : row, peak);
  if (bids && !peaks.empty()) fmt::print("hertz {:.6g}\n", peaks.at("") * 1e9 / (2 * m.f32_lanes()) * m.fma_cycles);
  for (const Line& line : lines(formats)) {
    if (assembly ? line.name != filter : line.name.find(filter) == std::string::npos) continue;
    if (assembly)
      print_assembly(line, m, formats);
    else if (bids || predict)
      print_bids(line, m, formats, bids);
    else
      run_line(line, m, formats, peaks);
  }
  return 0;
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  try {
    return lumen::bench_gemm({argv + 1, argv + argc});
  } catch (const lumen::Error& e) {
    fmt::print(stderr, "{}\n{}\n", e.what(), e.hint());
    return static_cast<int>(e.code());
  }
}
