// needs: none. Every family that two ranks can share computes the same loss in two parts; a family that they cannot is
// named here, with why.
#include "graph/partition/partition.h"

#include "graph/pass/pass.h"
#include "tests/graph/partition/rank_run.h"
#include "tests/model/compress/rewrite/rewrite_case.h"

namespace lumen::model {
namespace {

graph::Graph loss_of(const Model& m) {
  graph::Graph g = graph::bind_symbols(function_of(m, "loss"), {{"B", 1}, {"T", 5}});
  graph::inline_calls(g);
  graph::simplify(g);
  return g;
}

std::map<std::string, graph::Tensor> inputs_of(const Model& m, const graph::Graph& g) {
  std::map<std::string, graph::Tensor> inputs;
  for (const auto& [name, w] : m.weights)
    if (g.find_input(name) >= 0) inputs[name] = f32_tensor(w);
  std::vector<double> tokens, targets;
  for (int i = 0; i < 5; ++i) {
    tokens.push_back((i * 7 + 3) % static_cast<int>(m.integer("vocab")));
    targets.push_back((i * 5 + 1) % static_cast<int>(m.integer("vocab")));
  }
  inputs["tokens"] = integers({1, 5}, tokens);
  inputs["targets"] = integers({1, 5}, targets);
  return inputs;
}

TEST(FamiliesInParts, LossesAreThoseOfTheWhole) {
  std::map<std::string, std::string> refused;
  int shared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies)) {
    if (!entry.is_directory() || !std::filesystem::exists(entry.path() / "config.json")) continue;
    const std::string name = entry.path().filename().string();
    const Model m = uneven_model(name);
    if (!m.family->has_function("loss")) continue;
    const graph::Graph g = loss_of(m);
    graph::TensorSplit split;
    try {
      split = graph::find_partition(g, 2, [](const std::string&) { return true; });
    } catch (const Error& error) {
      refused[name] = error.what();
      continue;
    }
    graph::Exchanged exchanged;
    const graph::Graph local = graph::partitioned(g, split, {}, &exchanged);
    EXPECT_EQ(exchanged.gathers, 0) << name;
    const double want = graph::eval(g, inputs_of(m, g), {.wide = true, .symbols = {}, .exchange = {}})[0].values[0];
    for (const graph::RankResults& rank : graph::run_ranks(local, split, inputs_of(m, g), true))
      EXPECT_NEAR(rank.results[0].values[0], want, 1e-9 * std::abs(want)) << name;
    fmt::print("{}: {} tensors in parts, {} sums\n", name, split.inputs.size(), exchanged.sums);
    ++shared;
  }
  for (const auto& [name, why] : refused) fmt::print("{}: {}\n", name, why);
  EXPECT_GT(shared, 10);
}

}  // namespace
}  // namespace lumen::model
