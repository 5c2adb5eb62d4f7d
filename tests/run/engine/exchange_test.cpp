// Needs: cpu. Programs whose graphs exchange values: ranks compute together what the whole graph does, the same bits on
// all of them and in every run.
#include <gtest/gtest.h>

#include "graph/partition/partition.h"
#include "tests/graph/partition/partition_case.h"
#include "tests/graph/partition/rank_run.h"
#include "tests/run/graphs.h"
#include "tests/run/ranks/among.h"

namespace lumen::run {
namespace {

TEST(Exchange, RanksComputeWhatTheWholeDoes) {
  const graph::Graph whole = graph::step_of(graph::attention(false));
  const graph::TensorSplit split =
      graph::find_partition(graph::attention(false), 2, [](const std::string&) { return true; });
  const graph::Graph local = graph::partitioned(whole, split);
  std::map<std::string, graph::Tensor> inputs = random_inputs(whole, 5);
  for (double& token : inputs.at("tokens").values) token = std::fmod(std::fabs(std::floor(token)), 12);
  std::map<std::string, graph::Tensor> states;
  const auto want = graph::eval(whole, inputs, {}, &states);
  std::vector<std::map<std::string, std::vector<float>>> got(2);
  const auto errors = among_shared(2, [&](Communicator& ranks) {
    Engine engine(options("off", 1));
    CompileOptions how;
    how.exchange = [&](graph::Moves moves, const void* from, void* to, int64_t bytes) {
      SentPieces sent(2);
      TakenPieces taken(2);
      for (int r = 0; r < 2; ++r) {
        const int64_t at = moves == graph::Moves::gather ? 0 : r * bytes;
        sent[r] = {{static_cast<const std::byte*>(from) + at, bytes}};
        taken[r] = {{static_cast<std::byte*>(to) + r * bytes, bytes}};
      }
      ranks.exchange(sent, taken);
    };
    std::map<std::string, graph::Tensor> own = inputs;
    for (const auto& [name, s] : split.inputs) own[name] = graph::part_of(own.at(name), s, 2, ranks.rank());
    own[graph::kTensorRank] = {{{}, {Scalar::i32, nullptr}}, {static_cast<double>(ranks.rank())}, {}};
    const auto program = run_once(engine, local, own, how);
    for (const char* name : {"loss", "norm", "wo"}) got[ranks.rank()][name] = floats_of(program->result(name));
  });
  EXPECT_EQ(errors, kNoErrors2);
  for (int r = 0; r < 2; ++r) {
    expect_near(got[r]["loss"], want.front().values, 1e-5);
    expect_near(got[r]["norm"], want.back().values, 1e-4);
    for (size_t i = 0; i < want.size(); ++i)
      if (whole.result_names[i] == "wo")
        expect_near(got[r]["wo"], graph::part_of(want[i], split.inputs.at("wo"), 2, r).values, 1e-4);
  }
  EXPECT_EQ(got[0]["loss"], got[1]["loss"]);
  EXPECT_EQ(got[0]["norm"], got[1]["norm"]);
}

}  // namespace
}  // namespace lumen::run
