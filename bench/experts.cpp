// A layer of experts (three products, two of them from shared rows) as one operator beside copies of each row's
// matrices: times with all threads, best of several, and the memory beside weights and rows.
//   bench_experts [ROWS,ROWS...] [FORMAT,FORMAT...] [HIDDENxFFNxEXPERTSxPICKED] [--backward] [--explain] [--no-copies]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <sstream>

#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "number/library/library.h"
#include "run/engine/engine.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Role;
using graph::ValueId;

struct Layer {
  int64_t rows = 1, hidden = 1024, wide = 2816, experts = 8, picked = 2;
  FormatRef format;
  bool copies = false, backward = false;
};

graph::Type type_of(const std::vector<int64_t>& shape, Scalar s = Scalar::f32, FormatRef f = nullptr) {
  graph::Type t{{}, {s, std::move(f)}};
  for (const int64_t e : shape) t.shape.emplace_back(e);
  return t;
}

graph::Graph graph_of(const Layer& l) {
  graph::Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, type_of({l.rows, l.hidden}));
  const ValueId picks = b.input("picks", Role::data, type_of({l.rows, l.picked}, Scalar::i32));
  std::vector<ValueId> parameters;
  const auto weight = [&](const std::string& name, int64_t n, int64_t k) {
    const ValueId w = b.input(name, Role::parameter, type_of({l.experts, n, k}, Scalar::f32, l.format));
    parameters.push_back(w);
    return l.format ? b.cast(w, {Scalar::f32, nullptr}) : w;
  };
  const ValueId gates = weight("gates", l.wide, l.hidden), ups = weight("ups", l.wide, l.hidden),
                downs = weight("downs", l.hidden, l.wide);
  const int64_t all = l.rows * l.picked;
  const auto product = [&](ValueId rows, ValueId w, std::string letters) {
    if (!l.copies) return b.contract_gather(rows, w, picks, std::move(letters), "efk", "nj");
    if (letters == "nk") rows = b.broadcast(b.reshape(rows, {l.rows, 1, l.hidden}), {l.rows, l.picked, l.hidden});
    const int64_t k = b.type(rows).shape[2].number();
    const ValueId chosen = b.gather(w, b.reshape(picks, {all}));
    const ValueId y = b.contract(b.reshape(rows, {all, k}), chosen, "ak", "afk", "af");
    return b.reshape(y, {l.rows, l.picked, b.type(w).shape[1].number()});
  };
  const ValueId gate = product(x, gates, "nk");
  const ValueId inner = b.mul(b.mul(gate, b.unary(ScalarOp::tanh_, gate)), product(x, ups, "nk"));
  const ValueId parts = product(inner, downs, "njk");
  const ValueId y = b.reshape(b.reduce(parts, graph::Reduction::sum, {1}), {l.rows, l.hidden});
  g.results = {y};
  g.result_names = {"y"};
  if (!l.backward) return g;
  const ValueId loss = b.reshape(b.reduce(b.mul(y, y), graph::Reduction::sum, {0, 1}), {});
  std::vector<ValueId> wanted{x};
  if (!l.format) wanted.insert(wanted.end(), parameters.begin(), parameters.end());
  for (const ValueId d : graph::differentiate(g, loss, wanted)) {
    g.results.push_back(d);
    g.result_names.push_back(fmt::format("d{}", g.results.size()));
  }
  return g;
}

run::DeviceTensorRef random_input(run::Engine& engine, const graph::Type& type, int64_t below, std::mt19937& random) {
  auto t = std::make_shared<run::DeviceTensor>(engine.device(), type);
  const int64_t count = graph::elements(type.shape).number();
  if (type.element.scalar == Scalar::i32 && !type.element.format) {
    std::vector<int32_t> v(static_cast<size_t>(count));
    const int64_t picked = type.shape.back().number();
    for (size_t i = 0; i < v.size(); ++i) {  // no expert twice in a row
      const auto row = i / static_cast<size_t>(picked) * static_cast<size_t>(picked);
      do v[i] = static_cast<int32_t>(random() % static_cast<uint64_t>(below));
      while (std::find(v.begin() + static_cast<std::ptrdiff_t>(row), v.begin() + static_cast<std::ptrdiff_t>(i),
                       v[i]) != v.begin() + static_cast<std::ptrdiff_t>(i));
    }
    t->upload(v.data(), t->bytes());
    return t;
  }
  std::vector<float> v(static_cast<size_t>(count));
  for (float& f : v) f = static_cast<float>(random() % 2001) / 20000.0F - 0.05F;
  if (type.element.format) {
    const int64_t columns = type.shape.back().number();
    const auto blob = engine.encode(type.element.format, v.data(), count / columns, columns);
    t->upload(blob.data(), t->bytes());
  } else {
    t->upload(v.data(), t->bytes());
  }
  return t;
}

struct Measured {
  double seconds = 0;
  int64_t bytes = 0;
  std::string explained;
};

Measured measure(run::Engine& engine, const Layer& l) {
  const auto program = engine.compile(graph_of(l), {});
  std::mt19937 random(1);
  for (const std::string& name : program->input_names())
    program->bind(name, random_input(engine, program->input_type(name), l.experts, random));
  Measured m;
  m.bytes = program->arena_bytes();
  m.seconds = 1e9;
  program->run();
  program->forget_times();
  double spent = 0;
  for (int round = 0; round < 40 && (spent < 1.5 || round < 3); ++round) {
    const auto start = std::chrono::steady_clock::now();
    program->run();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    m.seconds = std::min(m.seconds, s);
    spent += s;
  }
  m.explained = program->explain();
  return m;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::stringstream s(text);
  for (std::string part; std::getline(s, part, by);) out.push_back(part);
  return out;
}

void report(const std::vector<std::string>& arguments) {
  const FormatLibrary library = FormatLibrary::builtin();
  Layer layer;
  bool explain = false, copies = true;
  std::vector<std::string> rest;
  for (const std::string& a : arguments) {
    explain |= a == "--explain";
    layer.backward |= a == "--backward";
    copies &= a != "--no-copies";
    if (!a.starts_with("--")) rest.push_back(a);
  }
  if (rest.size() > 2) {
    const auto sizes = split(rest[2], 'x');
    layer.hidden = std::stoll(sizes.at(0));
    layer.wide = std::stoll(sizes.at(1));
    layer.experts = std::stoll(sizes.at(2));
    layer.picked = std::stoll(sizes.at(3));
  }
  run::Engine engine(run::Engine::Options{.cache_folder = "off", .machine = nullptr});
  fmt::print("{:>6} {:>8} {:>10} {:>10} {:>7} {:>10} {:>10} {:>10}\n", "rows", "format", "copies", "picked", "ratio",
             "GFLOP/s", "MB copies", "MB picked");
  for (const std::string& rows : split(rest.empty() ? "1,8,128,512" : rest[0], ','))
    for (const std::string& format : split(rest.size() < 2 ? "f32,q4_0" : rest[1], ',')) {
      layer.rows = std::stoll(rows);
      layer.format = format == "f32" ? nullptr : library.get(format);
      layer.copies = false;
      const Measured picked = measure(engine, layer);
      layer.copies = true;
      const Measured copied = copies ? measure(engine, layer) : Measured{};
      const double flops = 6.0 * static_cast<double>(layer.rows * layer.picked * layer.hidden * layer.wide);
      fmt::print("{:>6} {:>8} {:>8.2f}ms {:>8.2f}ms {:>7.2f} {:>10.1f} {:>10.1f} {:>10.1f}\n", rows, format,
                 copied.seconds * 1e3, picked.seconds * 1e3, copied.seconds / picked.seconds,
                 flops / picked.seconds / 1e9, static_cast<double>(copied.bytes) / 1e6,
                 static_cast<double>(picked.bytes) / 1e6);
      if (explain) fmt::print("{}\n", picked.explained);
    }
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  lumen::report({argv + 1, argv + argc});
  return 0;
}
