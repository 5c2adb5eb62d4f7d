// needs: none. Every family that two ranks can share computes the same loss in two parts; a family that they cannot is
// named here, with why.
#include "graph/partition/partition.h"

#include "graph/pass/pass.h"
#include "tests/graph/partition/rank_run.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model {
namespace {

graph::Graph loss_of(const arch::Model& m, int64_t tokens = 5) {
  graph::Graph g = graph::bind_symbols(function_of(m, "loss"), {{"B", 1}, {"T", tokens}});
  graph::inline_calls(g);
  graph::simplify(g);
  return g;
}

std::map<std::string, graph::Tensor> inputs_of(const arch::Model& m, const graph::Graph& g, int64_t count = 5) {
  std::map<std::string, graph::Tensor> inputs;
  for (const auto& [name, w] : m.weights)
    if (g.find_input(name) >= 0) inputs[name] = f32_tensor(w);
  std::vector<double> tokens, targets;
  for (int i = 0; i < count; ++i) {
    tokens.push_back((i * 7 + 3) % static_cast<int>(m.integer("vocab")));
    targets.push_back((i * 5 + 1) % static_cast<int>(m.integer("vocab")));
  }
  inputs["tokens"] = integers({1, count}, tokens);
  inputs["targets"] = integers({1, count}, targets);
  return inputs;
}

TEST(FamiliesInParts, LossesAreThoseOfTheWhole) {
  std::map<std::string, std::string> refused;
  int shared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies)) {
    if (!entry.is_directory() || !std::filesystem::exists(entry.path() / "config.json")) continue;
    const std::string name = entry.path().filename().string();
    const arch::Model m = compress::uneven_model(name);
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
    fmt::print("{}: {} tensors in parts, {} sums", name, split.inputs.size(), exchanged.sums);
    // The same of ranks that deal tokens, too, and know no sum whole that is larger than the tokens.
    const graph::Graph even = loss_of(m, 6);
    split.sequence = true;
    const graph::Graph dealt = graph::partitioned(even, split, {}, &exchanged);
    EXPECT_GT(exchanged.scatters, 0) << name;
    const auto inputs = inputs_of(m, even, 6);
    const double of_all = graph::eval(even, inputs, {.wide = true, .symbols = {}, .exchange = {}})[0].values[0];
    for (const graph::RankResults& rank : graph::run_ranks(dealt, split, inputs, true))
      EXPECT_NEAR(rank.results[0].values[0], of_all, 1e-9 * std::abs(of_all)) << name;
    fmt::print("; {} dealt along tokens, {} others, {} gathered\n", exchanged.scatters, exchanged.sums,
               exchanged.gathers);
    ++shared;
  }
  for (const auto& [name, why] : refused) fmt::print("{}: {}\n", name, why);
  EXPECT_GT(shared, 10);
}

}  // namespace
}  // namespace lumen::model
