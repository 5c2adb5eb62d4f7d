// needs: a folder named by LUMEN_EXCHANGE_DIR; run by transformer_reference.py, which computes the velocity and the
// gradients written here once more.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"
#include "tests/model/diffuse/quantize_case.h"

namespace lumen::model {
namespace {

constexpr int64_t kImages = 3;

std::vector<float> drawn_floats(int64_t count, uint64_t seed) {
  std::vector<float> out;
  Draws draws(seed);
  for (int64_t i = 0; i < count; ++i) out.push_back(float(draws.normal()));
  return out;
}

TEST(TransformerExchange, Write) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/model/diffuse/transformer_reference.py THIS_PROGRAM";
  const auto network = small_transformer();
  nlohmann::json out;
  std::map<std::string, std::vector<float>> floats;
  for (const Parameter& p : network->parameters()) {
    floats[p.name] = network->read(p.name);
    // Biases are not zero here.
    if (p.shape.size() == 1)
      for (size_t i = 0; i < floats[p.name].size(); ++i) floats[p.name][i] = 0.05F * float(int(i % 7) - 3);
    out["weights"][p.name] = floats[p.name];
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
  // The gradients of the sum of the velocity times numbers that are given.
  const FamilyRef family = test_library()->family("dit");
  graph::Graph g = graph::bind_symbols(family->function("velocity", family->config("", network->settings().config)),
                                       {{"B", kImages}});
  graph::Builder build(g);
  const graph::ValueId y = g.results[0];
  const graph::ValueId by = build.input("arriving", graph::Role::data, build.type(y));
  const graph::ValueId sum =
      build.reshape(build.reduce(build.mul(y, by), graph::Reduction::sum, {0, 1, 2, 3}), graph::Shape{});
  std::vector<graph::ValueId> with;
  for (const Parameter& p : network->parameters()) with.push_back(g.find_input(p.name));
  for (const graph::ValueId v : graph::differentiate(g, sum, with)) g.results.push_back(v);
  for (const Parameter& p : network->parameters()) g.result_names.push_back(p.name);
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
    (name == kResult ? out["velocity"] : out["gradients"][name]) = got;
  }
  write_file_atomic(std::filesystem::path(folder) / "transformer.json", out.dump());
}

}  // namespace
}  // namespace lumen::model
