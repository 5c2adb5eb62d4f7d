// needs: a folder named by LUMEN_EXCHANGE_DIR; run by recommender_reference.py, which computes what is written here of
// recommenders, with planned channels and without, with PyTorch.
#include <cmath>
#include <cstdlib>
#include <random>

#include "apps/network/network.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "tests/model/tiny.h"

namespace lumen::recommend {

using model::engine;
using model::test_library;

namespace {

constexpr int64_t kUsers = 5, kItems = 20, kWidth = 8;

std::vector<int32_t> some_items(std::mt19937& random, int64_t count, int32_t least) {
  std::vector<int32_t> out;
  for (; count > 0; --count) out.push_back(least + int32_t(random() % uint32_t(kItems + 1 - least)));
  return out;
}

nlohmann::json written_numbers(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  return {{"shape", shape}, {"values", values}};
}

// Weights that are not those of the beginning, banks of four sizes among them.
nlohmann::json fill_parameters(apps::Network& network, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  nlohmann::json out;
  for (const model::arch::Parameter& p : network.parameters()) {
    std::vector<float> values = network.read(p.name);
    // Channels of a matrix are compared: the more they differ, the less of that is rounding.
    const float size = p.name.ends_with("_u") || p.name.ends_with("_v") ? 1.5F : 0.5F;
    for (float& v : values) v = (p.init == "ones" ? 1.0F : 0.0F) + size * number(random);
    network.write(p.name, values);
    std::vector<int64_t> shape;
    for (const graph::Dim& d : p.shape) shape.push_back(d.number());
    out[p.name] = written_numbers(values, shape);
  }
  return out;
}

// Result and gradients of a loss by every parameter that is trained.
nlohmann::json written_loss(apps::Network& network, const std::string& loss, const apps::NetworkInputs& inputs,
                            const nlohmann::json& parameters) {
  nlohmann::json out;
  const auto results = network.results(loss, inputs, false, "gradients");
  out["loss"] = results.at(model::arch::kResult)[0];
  for (const auto& [name, values] : results)
    if (name.starts_with("gradient "))
      out["gradients"][name.substr(9)] = written_numbers(values, parameters[name.substr(9)]["shape"]);
  return out;
}

void define_gradients(apps::Network& network) {
  network.define("gradients", [&network](graph::Graph g) {
    graph::inline_calls(g);
    std::vector<graph::ValueId> by;
    std::vector<std::string> names;
    for (const model::arch::Parameter& p : network.parameters())
      if (const graph::ValueId v = g.find_input(p.name); !p.frozen && v >= 0) {
        by.push_back(v);
        names.push_back(p.name);
      }
    const std::vector<graph::ValueId> gradients = graph::differentiate(g, g.results[0], by);
    for (size_t i = 0; i < by.size(); ++i) {
      g.results.push_back(gradients[i]);
      g.result_names.push_back("gradient " + names[i]);
    }
    return g;
  });
}

void write_recommender(const std::filesystem::path& folder, const std::string& family, bool sees_whole_sequence,
                       bool is_planned, uint32_t seed) {
  std::mt19937 random(seed);
  apps::NetworkSettings s;
  s.family = family;
  s.config = {{"items", kItems}, {"hidden", kWidth}, {"dropout", 0}};
  if (sees_whole_sequence)
    s.config["length"] = 6;
  else
    s.config.insert({{"across", 3}, {"down", 4}});
  if (is_planned) s.config.insert({{"recent", 4}, {"balance", 0.5}, {"evenly", 0.2}});
  apps::Network network(engine(), *test_library(), s);
  nlohmann::json out = {{"family", family}, {"parameters", fill_parameters(network, random)}};
  define_gradients(network);
  const int64_t length = network.config("length"), targets = sees_whole_sequence ? length : network.config("targets");
  apps::NetworkInputs inputs;
  inputs.symbols = {{"B", kUsers}, {"T", length}, {"N", 6}, {"M", 7}};
  auto& integers = inputs.integers;
  integers["items"] = some_items(random, kUsers * length, 1);
  for (int64_t user = 0; user < kUsers; ++user)  // sequences stand at the right end
    for (int64_t i = 0; i < user % 3; ++i) integers["items"][user * length + i] = 0;
  integers["targets"] = some_items(random, kUsers * targets, 1);
  integers["negatives"] = some_items(random, kUsers * targets, 1);
  integers["answers"] = some_items(random, 6, 1);
  integers["candidates"] = some_items(random, 7, 1);
  integers["candidates"][2] = integers["answers"][1];
  const int64_t states = sees_whole_sequence ? kUsers * length : kUsers;
  for (int64_t i = 0; i < 6; ++i) integers["rows"].push_back(int32_t(random() % uint32_t(states)));
  if (is_planned) {
    inputs.symbols["P"] = 4;
    integers["recent"] = some_items(random, kUsers * 4, 0);
    inputs.numbers["tau"] = {0.7F};
    inputs.numbers["bits"] = {1, 2, 4, 6};
    for (int64_t i = 0; i < kUsers * network.config("channels"); ++i)
      integers["classes"].push_back(int32_t(random() % 4));
    out["profile"] = network.run("profile", inputs);
  }
  out["scores"] = network.run("scores", inputs);
  for (const std::string loss : {"loss_pairs", "loss_candidates"}) {
    apps::NetworkInputs own = inputs;
    std::vector<float>& counts = own.numbers["counts"];
    for (int64_t i = 0; i < (loss == "loss_pairs" ? kUsers * targets : 6); ++i) counts.push_back(float(i % 3));
    out[loss] = written_loss(network, loss, own, out["parameters"]);
    out[loss]["counts"] = counts;
  }
  for (const auto& [name, values] : integers) out["integers"][name] = values;
  for (const auto& [name, values] : inputs.numbers) out["numbers"][name] = values;
  write_file_atomic(folder / (family + ".json"), json_print(out, "a recommender"));
}

TEST(RecommendExchange, WritesScoresAndGradients) {
  const char* const folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/apps/recommend/recommender_reference.py THIS_PROGRAM";
  write_recommender(folder, "sasrec", true, false, 1);
  write_recommender(folder, "sasrec_planned", true, true, 2);
  write_recommender(folder, "caser", false, false, 3);
  write_recommender(folder, "caser_planned", false, true, 4);
}

}  // namespace
}  // namespace lumen::recommend
