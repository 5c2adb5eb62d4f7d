// needs: a folder named by LUMEN_EXCHANGE_DIR; run by transformer_reference.py and unet_reference.py, which compute the
// velocity and the gradients written here once more.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"
#include "tests/apps/diffuse/quantize_case.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

constexpr int64_t kImages = 3;

std::vector<float> drawn_floats(int64_t count, uint64_t seed) {
  std::vector<float> out;
  Draws draws(seed);
  for (int64_t i = 0; i < count; ++i) out.push_back(float(draws.normal()));
  return out;
}

// A network's velocity on some images, and the gradients of the sum of it times numbers that are given; with weights,
// none of which is zero, and inputs.
nlohmann::json exchanged(const apps::Network& network) {
  nlohmann::json out;
  std::map<std::string, std::vector<float>> floats;
  for (const model::arch::Parameter& p : network.parameters()) {
    std::vector<float>& own = floats[p.name] = network.read(p.name);
    if (p.shape.size() == 1)
      for (size_t i = 0; i < own.size(); ++i) own[i] = 0.05F * float(int(i % 7) - 3) + (own[i] == 1 ? 1.0F : 0.0F);
    else if (std::ranges::all_of(own, [](float x) { return x == 0; }))
      own = drawn_floats(std::ssize(own), 30 + own.size());
    out["weights"][p.name] = own;
  }
  const int64_t each = 12 * 12;
  floats["x"] = drawn_floats(kImages * each, 21);
  floats["t"] = {0.05F, 0.5F, 0.93F};
  floats["arriving"] = drawn_floats(kImages * each, 22);
  const std::vector<int32_t> label = {2, 0, 4};
  out["x"] = floats["x"];
  out["t"] = floats["t"];
  out["arriving"] = floats["arriving"];
  out["label"] = label;
  const model::arch::FamilyRef family = test_library()->family(network.settings().family);
  graph::Graph g = graph::bind_symbols(family->function("velocity", family->config("", network.settings().config)),
                                       {{"B", kImages}});
  graph::Builder build(g);
  const graph::ValueId y = g.results[0];
  const graph::ValueId by = build.input("arriving", graph::Role::data, build.type(y));
  const graph::ValueId sum =
      build.reshape(build.reduce(build.mul(y, by), graph::Reduction::sum, {0, 1, 2, 3}), graph::Shape{});
  std::vector<graph::ValueId> with;
  for (const model::arch::Parameter& p : network.parameters()) with.push_back(g.find_input(p.name));
  for (const graph::ValueId v : graph::differentiate(g, sum, with)) g.results.push_back(v);
  for (const model::arch::Parameter& p : network.parameters()) g.result_names.push_back(p.name);
  const auto program = engine().compile(g, {});
  std::vector<run::DeviceTensorRef> kept;
  for (const std::string& name : program->input_names()) {
    kept.push_back(std::make_shared<run::DeviceTensor>(engine().device(), program->input_type(name)));
    if (name == "label")
      kept.back()->upload(label.data(), kept.back()->bytes());
    else
      kept.back()->upload(floats.at(name).data(), kept.back()->bytes());
    program->bind(name, kept.back());
  }
  program->run();
  for (const std::string& name : g.result_names) {
    std::vector<float> got(program->result(name)->bytes() / sizeof(float));
    program->result(name)->download(got.data(), program->result(name)->bytes());
    (name == model::arch::kResult ? out["velocity"] : out["gradients"][name]) = got;
  }
  return out;
}

void write_exchanged(const std::string& file, const apps::Network& network) {
  write_file_atomic(std::filesystem::path(std::getenv("LUMEN_EXCHANGE_DIR")) / file, exchanged(network).dump());
}

TEST(TransformerExchange, Write) {
  if (!std::getenv("LUMEN_EXCHANGE_DIR"))
    GTEST_SKIP() << "run tests/apps/diffuse/transformer_reference.py THIS_PROGRAM";
  write_exchanged("transformer.json", *small_transformer());
}

TEST(UnetExchange, Write) {
  if (!std::getenv("LUMEN_EXCHANGE_DIR")) GTEST_SKIP() << "run tests/apps/diffuse/unet_reference.py THIS_PROGRAM";
  apps::NetworkSettings s;
  s.family = "unet";
  s.config = {{"size", 12}, {"width", 8}, {"groups", 2}, {"hidden", 16}, {"waves", 32}, {"classes", 4}};
  write_exchanged("unet.json", apps::Network(engine(), *test_library(), s));
}

}  // namespace
}  // namespace lumen::diffuse
