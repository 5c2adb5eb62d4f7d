// Products on all threads of this processor: weights in formats, too large for its caches, beside f32 activations.
//   bench_cpu [--machine NAME] [--threads N] [--plans] --shapes MxNxK,.. FORMAT..
//     FORMAT f32 and other scalars are weights as they lie. --plans: every plan that the cost models offer, the one
//     they choose first.
// A line is "SHAPE FORMAT | cycles predicted | us of every step (medians) | GFLOP/s | tasks | plan"; every launch reads
// another copy of the weight.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "emit/emit.h"
#include "graph/ir/build.h"
#include "graph/match/access.h"
#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "run/device/cpu/threads.h"
#include "run/engine/program/tune.h"
#include "shapes.h"

namespace lumen {
namespace {

constexpr int64_t kWeightBytes = 512 << 20;  // of all copies together
constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.02;

struct Settings {
  std::string machine = "native";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool plans = false;
  std::vector<ProductShape> shapes;
  std::vector<std::string> formats;
};

Settings read_settings(const std::vector<std::string>& words) {
  Settings s;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto value = [&] {
      if (i + 1 == words.size()) throw usage_error("{} takes a value", word);
      return words[++i];
    };
    if (word == "--machine")
      s.machine = value();
    else if (word == "--threads")
      s.threads = std::max(1, std::atoi(value().c_str()));
    else if (word == "--plans")
      s.plans = true;
    else if (word == "--shapes")
      s.shapes = read_shapes(value());
    else if (word.starts_with("--"))
      throw usage_error("no option is called '{}'", word);
    else
      s.formats.push_back(word);
  }
  if (s.shapes.empty() || s.formats.empty()) throw usage_error("bench_cpu takes --shapes MxNxK,.. and formats");
  return s;
}

graph::Type matrix(int64_t rows, int64_t columns, Scalar scalar, FormatRef format) {
  graph::Type t;
  t.shape = {graph::Dim(rows), graph::Dim(columns)};
  t.element.scalar = scalar;
  t.element.format = std::move(format);
  return t;
}

graph::Plan plan_of(const ProductShape& shape, Scalar scalar, const FormatRef& format) {
  graph::Plan plan;
  graph::Builder build(plan.graph);
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  const graph::ValueId a = build.input("a", graph::Role::data, matrix(shape.m, shape.k, Scalar::f32, nullptr));
  graph::ValueId b = build.input("b", graph::Role::parameter, matrix(shape.n, shape.k, scalar, format));
  group.inputs = {a, b};
  if (format || scalar != Scalar::f32) {
    b = build.cast(b, {Scalar::f32, nullptr});
    group.nodes.push_back(b);
  }
  group.root = build.contract(a, b, "mk", "nk", "mn");
  group.nodes.push_back(group.root);
  group.results = {group.root};
  plan.groups = {group};
  return plan;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory memory_of(int64_t bytes) {
  const auto size = static_cast<size_t>((bytes + 4095) / 4096 * 4096 + 4096);
  Memory m(std::aligned_alloc(4096, size));
  if (!m) throw user_error("no memory for {} bytes", bytes);
  std::memset(m.get(), 0, size);
  return m;
}

class Timer {
 public:
  Timer(const graph::Plan& plan, int threads) : plan_(plan), threads_(threads) {
    weight_bytes_ = (graph::byte_size(plan.graph[1].type) + 4095) / 4096 * 4096;
    copies_ = std::max<int64_t>(1, kWeightBytes / weight_bytes_);
    for (const graph::Node& n : plan.graph.nodes) values_.push_back(memory_of(graph::byte_size(n.type)));
    values_[1] = memory_of(weight_bytes_ * copies_);
    auto* x = static_cast<float*>(values_[0].get());
    for (int64_t i = 0; i < graph::byte_size(plan.graph[0].type) / 4; ++i)
      x[i] = static_cast<float>(i * 37 % 101) / 50.0F - 1;
  }

  // Median seconds of each step.
  std::vector<double> time(const synth::Synthesis& s, const machine::Machine& m) {
    std::vector<loop::Kernel> kernels;
    for (const synth::Step& step : s.steps) kernels.push_back(step.kernel);
    const std::string object = emit::emit(kernels, m, emit::Output::object);
    const emit::LoadedModule module(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
    std::vector<emit::CpuKernel> code;
    for (const loop::Kernel& k : kernels) code.push_back(module.find(emit::symbol_name(k)));
    std::vector<Memory> scratch;
    for (const int64_t bytes : s.scratch) scratch.push_back(memory_of(bytes));
    std::vector<double> round_times(s.steps.size());
    const auto launch = [&] {
      char* const weight = static_cast<char*>(values_[1].get()) + weight_bytes_ * (launched_++ % copies_);
      for (size_t i = 0; i < s.steps.size(); ++i) {
        std::vector<void*> buffers;
        for (const synth::Argument& a : s.steps[i].arguments) {
          const auto index = static_cast<size_t>(a.index);
          const bool is_value = a.from == synth::Argument::From::value;
          buffers.push_back(!is_value ? scratch[index].get() : index == 1 ? weight : values_[index].get());
        }
        const auto start = std::chrono::steady_clock::now();
        threads_.run(code[i], buffers.data(), kernels[i].tasks);
        round_times[i] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
    };
    std::vector<std::vector<double>> times(s.steps.size());
    launch();
    for (int round = 0, repeat = 1; round < kRounds; ++round) {
      std::fill(round_times.begin(), round_times.end(), 0);
      for (int i = 0; i < repeat; ++i) launch();
      for (size_t i = 0; i < times.size(); ++i) times[i].push_back(round_times[i] / repeat);
      const double seconds = std::accumulate(round_times.begin(), round_times.end(), 0.0);
      if (round == 0) repeat = std::clamp(static_cast<int>(kRoundSeconds / std::max(seconds, 1e-7)), 1, 1000);
    }
    std::vector<double> medians;
    for (std::vector<double>& t : times) medians.push_back(run::median(std::move(t)));
    return medians;
  }

 private:
  const graph::Plan& plan_;
  run::Threads threads_;
  int64_t weight_bytes_ = 0, copies_ = 1, launched_ = 0;
  std::vector<Memory> values_;
};

void run_shape(const ProductShape& shape, const std::string& name, const Settings& settings, const machine::Machine& m,
               const FormatLibrary& formats) {
  const FormatRef format = formats.find(name);
  const std::optional<Scalar> scalar = format ? Scalar::f32 : scalar_from_name(name);
  if (!scalar) throw usage_error("no format or scalar is called '{}'", name);
  const graph::Plan plan = plan_of(shape, *scalar, format);
  Timer timer(plan, settings.threads);
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  for (const auto& [bid, s] : synth::synthesize_bids(plan, plan.groups[0], m, {}, settings.plans)) {
    const std::vector<double> times = timer.time(s, m);
    const double time = std::accumulate(times.begin(), times.end(), 0.0);
    std::string steps;
    for (const double t : times) steps += fmt::format("{}{:.1f}", steps.empty() ? "" : " + ", t * 1e6);
    fmt::print("{}x{}x{} {} | {:.4g} | {} us | {:.1f} GFLOP/s | {} tasks | {}\n", shape.m, shape.n, shape.k, name,
               bid.cycles, steps, flops / time / 1e9, s.steps.back().kernel.tasks, s.steps.back().plan);
    std::fflush(stdout);
    if (!settings.plans) break;
  }
}

int bench_cpu(const std::vector<std::string>& words) {
  const Settings settings = read_settings(words);
  const machine::MachineRef m = machine::find_machine(settings.machine);
  if (!m) throw usage_error("no machine is called '{}'", settings.machine);
  if (!machine::runs_here(*m)) throw user_error("this processor does not run code for {}", m->name);
  const FormatLibrary formats = FormatLibrary::builtin();
  fmt::print("{}, {} threads\n", m->name, settings.threads);
  for (const std::string& format : settings.formats)
    for (const ProductShape& shape : settings.shapes) run_shape(shape, format, settings, *m, formats);
  return 0;
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  try {
    return lumen::bench_cpu({argv + 1, argv + argc});
  } catch (const lumen::Error& e) {
    fmt::print(stderr, "{}\n{}\n", e.what(), e.hint());
    return static_cast<int>(e.code());
  }
}
