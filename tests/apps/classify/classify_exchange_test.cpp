// needs: a folder named by LUMEN_EXCHANGE_DIR; run by network_reference.py, which computes what is written here of
// classifiers with PyTorch.
#include <cstdlib>

#include "apps/classify/classify.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "tests/model/tiny.h"

namespace lumen::classify {

using model::engine;
using model::test_library;

namespace {

nlohmann::json written_tensor(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  return {{"shape", shape}, {"values", values}};
}

void write_classifier(const std::filesystem::path& folder, const std::string& family) {
  apps::NetworkSettings s;
  s.family = family;
  s.size = "xs";
  s.config = {{"size", 16}, {"channels", 3}, {"classes", 4}};
  if (family == "resnet") s.config["each"] = 2;
  apps::Network network(engine(), *test_library(), s);
  constexpr int64_t kImages = 6;
  apps::NetworkInputs inputs;
  inputs.symbols = {{"B", kImages}};
  for (int64_t i = 0; i < kImages * 16 * 16 * 3; ++i) inputs.numbers["images"].push_back(std::sin(0.37 * i + i % 7));
  inputs.integers["shown"] = {0, 1, 2, 3, 1, 1};
  nlohmann::json out = {{"family", family}, {"images", written_tensor(inputs.numbers["images"], {kImages, 16, 16, 3})}};
  out["shown"] = inputs.integers["shown"];
  // Statistics and levels that are not those of the beginning.
  for (const model::arch::Parameter& p : network.parameters()) {
    std::vector<float> values = network.read(p.name);
    if (p.shape.size() == 1)
      for (size_t i = 0; i < values.size(); ++i) values[i] += 0.05F * float(i % 5);
    network.write(p.name, values);
    std::vector<int64_t> shape;
    for (const graph::Dim& d : p.shape) shape.push_back(d.number());
    out["parameters"][p.name] = written_tensor(values, shape);
  }
  out["logits"] = written_tensor(network.run("logits", inputs), {kImages, 4});
  network.define("gradients", [&](graph::Graph g) {
    graph::inline_calls(g);
    std::vector<graph::ValueId> by;
    std::vector<std::string> names;
    for (const model::arch::Parameter& p : network.parameters())
      if (!p.frozen) {
        by.push_back(g.find_input(p.name));
        names.push_back(p.name);
      }
    const std::vector<graph::ValueId> gradients = graph::differentiate(g, g.results[0], by);
    for (size_t i = 0; i < by.size(); ++i) {
      g.results.push_back(gradients[i]);
      g.result_names.push_back("gradient " + names[i]);
    }
    return g;
  });
  const auto results = network.results("loss", inputs, false, "gradients");
  out["loss"] = results.at(model::arch::kResult)[0];
  for (const auto& [name, values] : results)
    if (name.starts_with("gradient "))
      out["gradients"][name.substr(9)] = written_tensor(values, out["parameters"][name.substr(9)]["shape"]);
  write_file_atomic(folder / (family + ".json"), json_print(out, "a classifier"));
}

TEST(ClassifyExchange, WritesLogitsAndGradients) {
  const char* const folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/apps/classify/network_reference.py THIS_PROGRAM";
  for (const char* family : {"small_images", "resnet"}) write_classifier(folder, family);
}

}  // namespace
}  // namespace lumen::classify
