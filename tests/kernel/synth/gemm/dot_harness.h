// Runs a group's kernels on small tensors by the loop evaluator. Shared by the tests of dots; tests/ladder runs the
// same as code.
#pragma once

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/pipeline/pipeline.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/synth.h"
#include "number/codec/codec.h"

namespace lumen::dot_test {

using Bytes = std::vector<uint8_t>;

// f32, or held in a format.
inline graph::Type type_of(const std::vector<int64_t>& dims, FormatRef format = nullptr) {
  graph::Type t;
  for (int64_t d : dims) t.shape.emplace_back(d);
  t.element.format = std::move(format);
  return t;
}

// All nodes but inputs and stored constants in one dot group around the last contract.
inline graph::Plan one_dot_group(const graph::Graph& g) {
  graph::Plan plan;
  plan.graph = g;
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  for (graph::ValueId v = 0; v < static_cast<int>(g.nodes.size()); ++v) {
    const graph::Node& n = g[v];
    const bool stored = n.op == graph::Op::input_ || (n.op == graph::Op::constant_ && !graph::is_splat(n));
    (stored ? group.inputs : group.nodes).push_back(v);
    if (n.op == graph::Op::contract_) group.root = v;
  }
  group.results = {g.results.at(0)};
  plan.groups.push_back(group);
  return plan;
}

// What the first of some families that bids would write, whoever wins: tiny products of tests are cheap in every way.
// Nothing when none of them bids.
inline std::optional<synth::Synthesis> steps_of_family(const graph::Plan& plan, const machine::Machine& m,
                                                       std::initializer_list<std::string_view> families,
                                                       const synth::Options& options = {}) {
  for (const synth::WrittenBid& w : synth::synthesize_bids(plan, plan.groups[0], m, options, false))
    for (const std::string_view family : families)
      if (w.bid.family == family) return w.steps;
  return std::nullopt;
}

inline Bytes to_bytes(const graph::Tensor& t) {
  if (t.type.element.format) return t.blob;
  const Scalar s = t.type.element.scalar;
  Bytes out(t.values.size() * static_cast<size_t>(scalar_bytes(s)));
  for (size_t i = 0; i < t.values.size(); ++i) {
    if (s == Scalar::f32) {
      const float x = static_cast<float>(t.values[i]);
      std::memcpy(&out[i * 4], &x, 4);
    } else if (s == Scalar::f16 || s == Scalar::bf16) {
      const float x = static_cast<float>(t.values[i]);
      const uint16_t h = s == Scalar::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      std::memcpy(&out[i * 2], &h, 2);
    } else {
      const int64_t x = static_cast<int64_t>(t.values[i]);
      std::memcpy(&out[i * static_cast<size_t>(scalar_bytes(s))], &x, static_cast<size_t>(scalar_bytes(s)));
    }
  }
  return out;
}

inline std::vector<float> floats_of(const Bytes& b) {
  std::vector<float> out(b.size() / 4);
  std::memcpy(out.data(), b.data(), out.size() * 4);
  return out;
}

// A tensor of floats in (-1, 1), of codes of 8 or 16 bits all over their range; for formats the encoded blob.
inline graph::Tensor random_tensor(const graph::Type& type, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  const int64_t count = graph::elements(type.shape).number();
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = number(random);
  graph::Tensor t;
  t.type = type;
  if (type.element.format) {
    const int64_t columns = type.shape.back().number();
    t.blob = encode(*type.element.format, x, count / columns, columns);
    return t;
  }
  for (float v : x) {
    switch (type.element.scalar) {
      case Scalar::boolean:
        t.values.push_back(v > 0);
        break;
      case Scalar::f16:
        t.values.push_back(f16_to_f32(f32_to_f16(v)));
        break;
      case Scalar::bf16:
        t.values.push_back(bf16_to_f32(f32_to_bf16(v)));
        break;
      case Scalar::i8:
      case Scalar::i16:
        t.values.push_back(std::floor(std::ldexp(v, scalar_bits(type.element.scalar) - 1)));
        break;
      case Scalar::u8:
        t.values.push_back(128 + std::floor(std::ldexp(v, 7)));
        break;
      default:
        t.values.push_back(v);
    }
  }
  return t;
}

// The buffers of each step, by argument; values start as their inputs, results and scratch as noise.
class Memory {
 public:
  Memory(const synth::Synthesis& s, const graph::Plan& plan, const std::map<std::string, graph::Tensor>& inputs) {
    for (graph::ValueId v = 0; v < static_cast<int>(plan.graph.nodes.size()); ++v) {
      const graph::Node& n = plan.graph[v];
      if (n.op == graph::Op::input_) {
        values_[v] = to_bytes(inputs.at(n.attributes.name));
      } else if (n.op == graph::Op::constant_ && !graph::is_splat(n)) {
        values_[v] = to_bytes({n.type, n.attributes.data, {}});
      }
    }
    for (graph::ValueId v : plan.groups[0].inputs)  // what other groups would have computed
      if (const auto made = inputs.find("%" + std::to_string(v)); made != inputs.end())
        values_[v] = to_bytes(made->second);
    for (graph::ValueId v : plan.groups[0].results)
      values_[v] = Bytes(static_cast<size_t>(graph::byte_size(plan.graph[v].type)), 0xcd);
    for (int64_t bytes : s.scratch) scratch_.emplace_back(static_cast<size_t>(bytes), 0xcd);
  }
  Bytes& of(const synth::Argument& a) {
    return a.from == synth::Argument::From::value ? values_.at(a.index) : scratch_.at(static_cast<size_t>(a.index));
  }
  Bytes& value(graph::ValueId v) { return values_.at(v); }

 private:
  std::map<graph::ValueId, Bytes> values_;
  std::vector<Bytes> scratch_;
};

// Inputs by name; the bytes of the one result, by the loop evaluator.
inline Bytes run_evaluated(const synth::Synthesis& s, const graph::Plan& plan,
                           const std::map<std::string, graph::Tensor>& inputs, const machine::Machine& m) {
  Memory memory(s, plan, inputs);
  for (const synth::Step& step : s.steps) {
    std::vector<std::span<uint8_t>> buffers;
    LUMEN_CHECK(step.arguments.size() == step.kernel.params.size());
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      Bytes& bytes = memory.of(step.arguments[i]);
      LUMEN_CHECK(static_cast<int64_t>(bytes.size()) == step.kernel.params[i].bytes, "{}: {} and {}",
                  step.kernel.params[i].name, bytes.size(), step.kernel.params[i].bytes);
      buffers.emplace_back(bytes);
    }
    loop::eval(step.kernel, buffers, [&](std::string_view row) { return m.meaning(row); }, m.wave);
  }
  return memory.value(plan.groups[0].results[0]);
}

}  // namespace lumen::dot_test
