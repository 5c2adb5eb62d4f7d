// Needs: none. A layer's part of a step in two graphs: one after the other they write what the part writes, whatever is
// computed again, and what goes from one to the other is what gradients read.
#include "graph/keep/passes.h"

#include <gtest/gtest.h>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

constexpr int64_t kTexts = 2, kLength = 16, kWidth = 64, kWide = 128;
using What = Recompute::What;

// x + down(tanh(up(norm(x)))^2), the gradients of its parameters and of x.
Graph layer() {
  Graph g;
  Builder b(g);
  const Type flow{{kTexts, kLength, kWidth}, kFloat};
  const ValueId x = b.input(std::string(kCarriedIn) + "0", Role::data, flow);
  const ValueId n = b.input("layer.n", Role::parameter, {{kWidth}, kFloat});
  const ValueId up = b.input("layer.up", Role::parameter, {{kWide, kWidth}, kFloat});
  const ValueId down = b.input("layer.down", Role::parameter, {{kWidth, kWide}, kFloat});
  const ValueId h = b.unary(ScalarOp::tanh_, b.contract(rms_norm(b, x, n), up, "btk", "nk", "btn"));
  const ValueId y = b.add(x, b.contract(b.mul(h, h), down, "btk", "nk", "btn"));
  b.update(b.input("kept.0", Role::state, flow), y);
  const ValueId arrives = b.input(std::string(kArriving) + "0", Role::data, flow);
  const ValueId loss = b.reshape(b.reduce(b.mul(y, arrives), Reduction::sum, {0, 1, 2}), {});
  const std::vector<ValueId> with = {n, up, down, x};
  const std::vector<ValueId> gradients = differentiate(g, loss, with);
  for (size_t i = 0; i < with.size(); ++i)
    b.update(b.input("gradient." + std::to_string(i), Role::state, g[with[i]].type), gradients[i]);
  return g;
}

ProductType products_of(const char* format, FieldSource scales, bool at_random) {
  static const FormatLibrary all = FormatLibrary::builtin();
  ProductType type(Scalar::bf16);
  if (format) type = ProductType(Scalar::bf16, all.get(format));
  type.sources = {scales, scales, scales, 4};
  type.random = {at_random, at_random, at_random};
  return type;
}

using States = std::map<std::string, Tensor>;

States run(const Graph& g, const States& inputs) {
  States states;
  (void)eval(g, inputs, {}, &states);
  return states;
}

// What the forward graph has written is what the backward one reads.
States run(const Passes& passes, const States& inputs) {
  States all = inputs;
  for (const auto& [name, type] : passes.kept)
    if (!all.contains(name)) {
      Tensor t{type, {}, {}};
      const int64_t size = byte_size(type), count = elements(type.shape).number();
      type.element.format ? t.blob.resize(size) : t.values.resize(count);
      all[name] = std::move(t);
    }
  const auto inputs_of = [&](const Graph& g) {
    States own;
    for (const ValueId v : g.inputs()) own[g[v].attributes.name] = all.at(g[v].attributes.name);
    return own;
  };
  States written = run(passes.forward, inputs_of(passes.forward));
  for (auto& [name, t] : written) all[name] = t;
  for (auto& [name, t] : run(passes.backward, inputs_of(passes.backward))) written[name] = t;
  return written;
}

int64_t kept_bytes(const Passes& passes) {
  int64_t bytes = 0;
  for (const auto& [name, type] : passes.kept) bytes += byte_size(type);
  return bytes;
}

int products_in(const Graph& g) {
  return std::count_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::contract_; });
}

TEST(Passes, TogetherWriteWhatThePartWrites) {
  struct Case {
    const char* format;
    FieldSource scales;
    bool at_random;
  };
  const Case cases[] = {{nullptr, FieldSource::fitted, false},
                        {"fp8_row", FieldSource::fitted, false},
                        {"fp8_row", FieldSource::fitted, true},
                        {"fp8_tensor", FieldSource::delayed, false}};
  for (const Case& c : cases) {
    const Graph part = with_rounded_products(layer(), {}, {}, products_of(c.format, c.scales, c.at_random));
    const States in = random_inputs(part, 1, 1000), expected = run(part, in);
    for (const What what : {What::none, What::maps, What::layers}) {
      const Passes passes = split_passes(part, {what, 0});
      const States got = run(passes, in);
      for (const auto& [name, t] : expected)
        EXPECT_EQ(got.at(name).values, t.values) << name << " " << (c.format ? c.format : "") << int(what);
      // Nothing is multiplied twice unless it is asked for, and then but the first of two: no gradient reads what the
      // second one gives.
      const int again = products_in(passes.forward) + products_in(passes.backward) - products_in(part);
      EXPECT_EQ(again, what == What::layers) << int(what);
      EXPECT_EQ(what == What::layers, kept_bytes(passes) == kTexts * kLength * kWidth * 4) << int(what);
    }
  }
}

TEST(Passes, KeepCodesAndShortNumbers) {
  const Graph plain = with_rounded_products(layer(), {}, {}, products_of(nullptr, FieldSource::fitted, false));
  const Graph codes = with_rounded_products(layer(), {}, {}, products_of("fp8_row", FieldSource::fitted, false));
  const auto bytes = [](const Graph& g, What what) { return kept_bytes(split_passes(g, {what, 0})); };
  EXPECT_LT(bytes(codes, What::none), bytes(plain, What::none));
  EXPECT_LE(bytes(plain, What::maps), bytes(plain, What::none));
  EXPECT_LT(bytes(plain, What::layers), bytes(plain, What::maps));
  static const FormatLibrary all = FormatLibrary::builtin();
  EXPECT_LT(kept_bytes(split_passes(plain, {What::none, 0, all.get("fp8_row")})), bytes(plain, What::none));
}

}  // namespace
}  // namespace lumen::graph
