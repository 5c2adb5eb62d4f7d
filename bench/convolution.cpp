// Convolutions in bf16, channels last: milliseconds of the product forward, of the gradient of the images and of that
// of the weight, each a program of its own with everything it takes (zeros around images, turned weights). Numbers lie
// in memory in bf16 before and afterwards, as convolution.py has them where it calls cuDNN.
//   bench_convolution [--device cuda] [--json] [SHAPE ..]      SHAPE: images x high x wide x channels : outputs, side
//   of
//     the window, stride, zeros around, as 64x56x56x64:64,3,1,1
//   bench_convolution --check TARGET [SHAPE ..]                what the kernels need on a target, without one
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "run/engine/engine.h"
#include "run/engine/program/execute.h"
#include "run/engine/random_inputs.h"
#include "run/engine/stages.h"

namespace lumen {
namespace {

using graph::ValueId;

struct Convolution {
  int64_t images = 1, high = 1, wide = 1, channels = 1, outputs = 1, side = 1, stride = 1, around = 0;
  int64_t high_after() const { return (high + 2 * around - side) / stride + 1; }
  int64_t wide_after() const { return (wide + 2 * around - side) / stride + 1; }
  double flops() const {
    const int64_t sums = images * high_after() * wide_after() * outputs;
    return 2.0 * static_cast<double>(sums) * static_cast<double>(side * side * channels);
  }
  std::string name() const {
    return fmt::format("{}x{}x{}x{}:{},{},{},{}", images, high, wide, channels, outputs, side, stride, around);
  }
};

Convolution parse(const std::string& text) {
  Convolution c;
  const int read = std::sscanf(text.c_str(), "%ldx%ldx%ldx%ld:%ld,%ld,%ld,%ld", &c.images, &c.high, &c.wide,
                               &c.channels, &c.outputs, &c.side, &c.stride, &c.around);
  const bool fits = c.stride > 0 && c.side > 0 && c.high + 2 * c.around >= c.side && c.wide + 2 * c.around >= c.side;
  if (read != 8 || !fits) throw Error(Exit::usage, fmt::format("no convolution: {}", text));
  return c;
}

enum class Way { forward, images, weight };

graph::Type bf16(const std::vector<int64_t>& shape) {
  graph::Type t;
  for (const int64_t d : shape) t.shape.emplace_back(d);
  t.element.scalar = Scalar::bf16;
  return t;
}

graph::Graph graph_of(const Convolution& c, Way way) {
  graph::Graph g;
  graph::Builder b(g);
  const auto plain = [&](const char* name, graph::Role role, const std::vector<int64_t>& shape) {
    return b.convert(b.input(name, role, bf16(shape)), Scalar::f32);
  };
  const ValueId x = plain("x", graph::Role::data, {c.images, c.high, c.wide, c.channels});
  const ValueId w = plain("w", graph::Role::parameter, {c.outputs, c.side, c.side, c.channels});
  ValueId image = x;
  const int64_t high = c.high + 2 * c.around, wide = c.wide + 2 * c.around;
  if (c.around > 0) image = b.pad(x, {c.images, high, wide, c.channels}, {0, c.around, c.around, 0});
  // Axes of the image in those of windows: n, row, column, row of the window, column of it, channel.
  const std::vector<int64_t> strides = {1, 0, 0,        0, 0, 0, 0, c.stride, 0, 1, 0, 0,
                                        0, 0, c.stride, 0, 1, 0, 0, 0,        0, 0, 0, 1};
  const ValueId seen =
      b.windows(image, {0, 0, 0, 0}, strides, {c.images, c.high_after(), c.wide_after(), c.side, c.side, c.channels});
  const ValueId y = b.contract(seen, w, "nhvijc", "oijc", "nhvo");
  ValueId result = y;
  if (way != Way::forward) {
    const ValueId slope = plain("g", graph::Role::data, {c.images, c.high_after(), c.wide_after(), c.outputs});
    const ValueId loss = b.reshape(b.reduce(b.mul(y, slope), graph::Reduction::sum, {0, 1, 2, 3}), {});
    result = graph::differentiate(g, loss, {way == Way::images ? x : w})[0];
  }
  g.results = {b.convert(result, Scalar::bf16)};
  g.result_names = {"r"};
  return g;
}

run::CompileOptions options() {
  run::CompileOptions o;
  o.products = Scalar::bf16;
  return o;
}

// Of one run among many that are asked for before the first has ended; the median of some rounds.
double seconds_of(run::Program& program) {
  constexpr int kRuns = 30, kRounds = 5;
  const auto round = [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i) program.enqueue();
    program.check();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRuns;
  };
  round();
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) rounds.push_back(round());
  std::ranges::sort(rounds);
  return rounds[kRounds / 2];
}

int report(const std::vector<std::string>& words) {
  std::string device = "cuda", target;
  bool json = false;
  std::vector<Convolution> lines;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--device" && i + 1 < words.size())
      device = words[++i];
    else if (words[i] == "--check" && i + 1 < words.size())
      target = words[++i];
    else if (words[i] == "--json")
      json = true;
    else
      lines.push_back(parse(words[i]));
  }
  constexpr Way kWays[] = {Way::forward, Way::images, Way::weight};
  constexpr const char* kNames[] = {"forward", "images", "weight"};
  if (!target.empty()) {
    for (const Convolution& c : lines)
      for (size_t w = 0; w < 3; ++w)
        fmt::print("{} {}\n{}\n", c.name(), kNames[w], run::check_text(graph_of(c, kWays[w]), options(), target));
    return 0;
  }
  run::Engine::Options of;
  of.device = device;
  of.cache_folder = "off";
  run::Engine engine(of);
  for (const Convolution& c : lines) {
    std::string out = json ? fmt::format("{{\"shape\": \"{}\", \"flops\": {:.0f}", c.name(), c.flops()) : c.name();
    for (size_t w = 0; w < 3; ++w) {
      const graph::Graph g = graph_of(c, kWays[w]);
      const auto program = engine.compile(g, options());
      run::bind_random_inputs(engine, g, {}, *program);
      const double seconds = seconds_of(*program);
      out += json ? fmt::format(", \"{}\": {:.6f}", kNames[w], seconds * 1e3)
                  : fmt::format("  {} {:.3f} ms {:.0f} TFLOP/s", kNames[w], seconds * 1e3, c.flops() / seconds / 1e12);
    }
    fmt::print("{}{}\n", out, json ? "}" : "");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace lumen

int main(int count, char** words) {
  try {
    return lumen::report({words + 1, words + count});
  } catch (const lumen::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return exit_code(e.code());
  }
}
