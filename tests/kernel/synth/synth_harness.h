// Runs whole plans through synthesis and an executor of kernels, and compares with the graph's evaluator. Shared by the
// tests of synthesis and by tests/ladder, which executes machine code.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/match/uses.h"
#include "graph/pipeline/pipeline.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/loop/text.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/step/step_builder.h"
#include "kernel/synth/synth.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "tests/verified.h"

namespace lumen::test {

using Blob = std::vector<uint8_t>;
using Execute = std::function<loop::Status(const loop::Kernel&, std::span<const std::span<uint8_t>>)>;

inline Blob memory_of(const graph::Tensor& t) {
  if (t.type.element.format) return t.blob;
  const Scalar s = t.type.element.scalar;
  const auto size = static_cast<size_t>(scalar_bytes(s));
  Blob out(t.values.size() * size);
  for (size_t i = 0; i < t.values.size(); ++i) {
    uint64_t bits = 0;
    if (s == Scalar::f32) {
      bits = std::bit_cast<uint32_t>(static_cast<float>(t.values[i]));
    } else if (s == Scalar::f16) {
      bits = f32_to_f16(static_cast<float>(t.values[i]));
    } else if (s == Scalar::bf16) {
      bits = f32_to_bf16(static_cast<float>(t.values[i]));
    } else if (s == Scalar::f64) {
      bits = std::bit_cast<uint64_t>(t.values[i]);
    } else {
      bits = static_cast<uint64_t>(static_cast<int64_t>(t.values[i]));
    }
    std::memcpy(&out[i * size], &bits, size);
  }
  return out;
}

inline graph::Tensor tensor_of(const graph::Type& type, const Blob& memory) {
  graph::Tensor t;
  t.type = type;
  if (type.element.format) {
    t.blob = memory;
    return t;
  }
  const Scalar s = type.element.scalar;
  const auto size = static_cast<size_t>(scalar_bytes(s));
  for (size_t i = 0; i * size < memory.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, &memory[i * size], size);
    if (s == Scalar::f32) {
      t.values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    } else if (s == Scalar::f16) {
      t.values.push_back(f16_to_f32(static_cast<uint16_t>(bits)));
    } else if (s == Scalar::bf16) {
      t.values.push_back(bf16_to_f32(static_cast<uint16_t>(bits)));
    } else if (s == Scalar::f64) {
      t.values.push_back(std::bit_cast<double>(bits));
    } else {
      const int drop = 64 - 8 * static_cast<int>(size);
      t.values.push_back(
          static_cast<double>(is_signed(s) ? static_cast<int64_t>(bits << drop) >> drop : static_cast<int64_t>(bits)));
    }
  }
  return t;
}

// Random contents; integers in [0, limit).
inline graph::Tensor random_values(const graph::Type& type, std::mt19937& random, int64_t limit) {
  graph::Tensor t;
  t.type = type;
  const int64_t count = graph::elements(type.shape).number();
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(normal(random));
  if (type.element.format) {
    const int64_t columns = type.shape.back().number();
    t.blob = encode(*type.element.format, x, count / columns, columns);
    return t;
  }
  for (const float v : x) {
    switch (type.element.scalar) {
      case Scalar::f16:
        t.values.push_back(f16_to_f32(f32_to_f16(v)));
        break;
      case Scalar::bf16:
        t.values.push_back(bf16_to_f32(f32_to_bf16(v)));
        break;
      case Scalar::f32:
      case Scalar::f64:
        t.values.push_back(v);
        break;
      case Scalar::boolean:
        t.values.push_back(v > 0);
        break;
      default:
        t.values.push_back(static_cast<double>(random() % static_cast<uint64_t>(limit)));
    }
  }
  return t;
}

// Runs every group of a plan; returns results by order and, by input name, states after the run.
struct PlanRun {
  std::vector<graph::Tensor> results;
  std::map<std::string, graph::Tensor> states;
  loop::Status status;
  std::vector<std::string> plans;
};

using Synthesize = std::function<synth::Synthesis(const graph::Plan&, const graph::Group&, const machine::Machine&,
                                                  const synth::Options&)>;

inline PlanRun run_plan(const graph::Plan& plan, const std::map<std::string, graph::Tensor>& inputs,
                        const machine::Machine& m, const Execute& execute,
                        const synth::Options& options = {.exact = true},
                        const Synthesize& synthesize = synth::synthesize) {
  const graph::Graph& g = plan.graph;
  std::map<graph::ValueId, Blob> memory;  // by storage
  for (graph::ValueId v = 0; v < static_cast<int>(g.nodes.size()); ++v) {
    const graph::Node& n = g[v];
    if (n.op == graph::Op::input_) memory[v] = memory_of(inputs.at(n.attributes.name));
    if (n.op == graph::Op::constant_ && n.attributes.data.size() > 1)
      memory[v] = memory_of({n.type, n.attributes.data, {}});
  }
  PlanRun out;
  for (const graph::Group& group : plan.groups) {
    const synth::Synthesis s = synthesize(plan, group, m, options);
    std::vector<Blob> scratch;
    for (const int64_t bytes : s.scratch) scratch.emplace_back(static_cast<size_t>(bytes), 0xcd);
    for (const graph::ValueId r : group.results) {
      const graph::ValueId at = graph::storage_of(g, r);
      if (!memory.contains(at)) memory[at] = Blob(static_cast<size_t>(graph::byte_size(g[r].type)), 0xcd);
    }
    for (const synth::Step& step : s.steps) {
      out.plans.push_back(step.plan);
      std::vector<std::span<uint8_t>> buffers;
      for (size_t i = 0; i < step.arguments.size(); ++i) {
        const synth::Argument& a = step.arguments[i];
        Blob& bytes = a.from == synth::Argument::From::value ? memory.at(graph::storage_of(g, a.index))
                                                             : scratch.at(static_cast<size_t>(a.index));
        LUMEN_CHECK(static_cast<int64_t>(bytes.size()) == step.kernel.params[i].bytes,
                    "{}: param {} has {} bytes, not {}", step.plan, i, bytes.size(), step.kernel.params[i].bytes);
        buffers.emplace_back(bytes);
      }
      const loop::Status status = execute(step.kernel, buffers);
      if (out.status.code == 0) out.status = status;
    }
  }
  for (const graph::ValueId r : g.results)
    out.results.push_back(tensor_of(g[r].type, memory.at(graph::storage_of(g, r))));
  for (const graph::ValueId v : g.inputs()) out.states[g[v].attributes.name] = tensor_of(g[v].type, memory.at(v));
  return out;
}

inline Execute loop_evaluator(const machine::Machine& m) {
  return [&m](const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) {
    return loop::eval(k, buffers, [&](std::string_view row) { return m.meaning(row); }, m.wave);
  };
}

inline void expect_equal(const graph::Tensor& got, const graph::Tensor& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.values.size(), want.values.size()) << what;
  if (want.type.element.format) {
    EXPECT_EQ(got.blob, want.blob) << what;
    return;
  }
  int bad = 0;
  for (size_t i = 0; i < want.values.size() && bad < 4; ++i) {
    const double a = got.values[i], b = want.values[i];
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * (1 + std::fabs(b));
    if (!same) {
      ++bad;
      ADD_FAILURE() << what << " element " << i << ": " << a << ", not " << b;
    }
  }
}

// What a check of a graph varies.
struct Check {
  double tolerance = 2e-5;
  std::map<std::string, int64_t> limits = {};  // integer inputs: values below
  std::vector<std::string> machines = {"x86-64-v3", "avx512"};
  uint32_t seed = 1;
  synth::Options options = {.exact = true};               // as the evaluator has it
  std::map<std::string, std::vector<double>> given = {};  // inputs that are not random
  Synthesize synthesize = synth::synthesize;
};

inline FormatRef format_named(std::string_view name) {
  static const FormatLibrary library = FormatLibrary::builtin();
  return library.get(name);
}

inline std::map<std::string, graph::Tensor> random_inputs(const graph::Graph& g, const Check& c) {
  std::mt19937 random(c.seed);
  std::map<std::string, graph::Tensor> inputs;
  for (const graph::ValueId v : g.inputs()) {
    const auto limit = c.limits.find(g[v].attributes.name);
    inputs[g[v].attributes.name] = random_values(g[v].type, random, limit == c.limits.end() ? 100 : limit->second);
    if (const auto given = c.given.find(g[v].attributes.name); given != c.given.end())
      inputs[g[v].attributes.name].values = given->second;
  }
  return inputs;
}

// Fuses the graph, runs it for every machine, compares with the evaluator; returns the plans of all kernels.
inline std::vector<std::string> check(const graph::Graph& g, const Check& c = {}, const Execute* execute = nullptr) {
  const auto inputs = random_inputs(g, c);
  std::map<std::string, graph::Tensor> states;
  const std::vector<graph::Tensor> want = graph::eval(g, inputs, {}, &states);
  const graph::Plan plan = graph::fuse(g);
  std::vector<std::string> plans;
  for (const std::string& name : c.machines) {
    const machine::MachineRef m = machine::find_machine(name);
    const PlanRun got = run_plan(plan, inputs, *m, execute ? *execute : loop_evaluator(*m), c.options, c.synthesize);
    EXPECT_EQ(got.status.code, 0) << got.status.detail;
    std::string what = name;
    for (const std::string& p : got.plans) what += "\n  " + p;
    for (size_t i = 0; i < want.size(); ++i)
      expect_equal(got.results[i], want[i], c.tolerance, what + "\nresult " + std::to_string(i));
    for (const auto& [state, value] : states)
      expect_equal(got.states.at(state), value, c.tolerance, what + "\nstate " + state);
    const char* executed = std::getenv("LUMEN_STAND_IN_AMD") ? "interpreted" : "hardware";
    for (const std::string& p : got.plans) verified(m->name, kind_of(p), execute ? executed : "evaluated");
    plans.insert(plans.end(), got.plans.begin(), got.plans.end());
  }
  return plans;
}

// Writes graphs in a line: G t; auto x = t.f32("x", {3, 5}); t.out(t.b.add(x, x)); check(t.g).
struct G {
  graph::Graph g;
  graph::Builder b{g};
  static graph::Shape shape(const std::vector<int64_t>& s) {
    graph::Shape out;
    for (const int64_t e : s) out.emplace_back(e);
    return out;
  }
  static graph::Type type(const std::vector<int64_t>& s, Scalar e = Scalar::f32) { return {shape(s), {e, nullptr}}; }
  graph::ValueId in(const std::string& name, const std::vector<int64_t>& s, Scalar e = Scalar::f32,
                    graph::Role role = graph::Role::data) {
    return b.input(name, role, type(s, e));
  }
  graph::ValueId in(const std::string& name, const std::vector<int64_t>& s, const FormatRef& f,
                    graph::Role role = graph::Role::data) {
    return b.input(name, role, {shape(s), {Scalar::f32, f}});
  }
  graph::ValueId decoded(graph::ValueId blob) { return b.cast(blob, {Scalar::f32, nullptr}); }
  void out(graph::ValueId v) {
    g.results.push_back(v);
    g.result_names.push_back("r" + std::to_string(g.results.size()));
  }
};

// Whether one of these plans says so.
inline bool any_contains(const std::vector<std::string>& plans, const std::string& what) {
  for (const std::string& p : plans)
    if (p.find(what) != std::string::npos) return true;
  return false;
}

}  // namespace lumen::test
