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

// How a rank's exchanges go: at once, or as late as they may, when what they send would have been overwritten and what
// they bring been read, had the program not waited for them rightly.
class Exchanges {
 public:
  Exchanges(Communicator& ranks, bool is_late) : ranks_(ranks), is_late_(is_late) {}

  Exchange exchange() {
    Exchange out;
    out.begin = [this](graph::Moves moves, const void* from, void* to, int64_t bytes, size_t ticket) {
      const Work work = {ticket, moves, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes};
      if (!is_late_) return go(work);
      EXPECT_TRUE(std::ranges::none_of(under_way_, [&](const Work& w) { return w.ticket == ticket; }));
      under_way_.push_back(work);
    };
    if (is_late_) out.await = [this](size_t ticket) { await(ticket); };
    return out;
  }
  size_t under_way() const { return under_way_.size(); }

 private:
  struct Work {
    size_t ticket;
    graph::Moves moves;
    const std::byte* from;
    std::byte* to;
    int64_t bytes;
  };
  // Those asked for before go first, as in a stream.
  void await(size_t ticket) {
    const auto found = std::ranges::find(under_way_, ticket, &Work::ticket);
    if (found == under_way_.end()) return;
    for (auto w = under_way_.begin(); w <= found; ++w) go(*w);
    under_way_.erase(under_way_.begin(), found + 1);
  }
  void go(const Work& w) {
    SentPieces sent(2);
    TakenPieces taken(2);
    for (int r = 0; r < 2; ++r) {
      const int64_t at = w.moves == graph::Moves::gather ? 0 : r * w.bytes;
      sent[r] = {{w.from + at, w.bytes}};
      taken[r] = {{w.to + r * w.bytes, w.bytes}};
    }
    ranks_.exchange(sent, taken);
  }

  Communicator& ranks_;
  bool is_late_;
  std::vector<Work> under_way_;
};

class ExchangesOf : public ::testing::TestWithParam<bool> {};

TEST_P(ExchangesOf, RanksComputeWhatTheWholeDoes) {
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
    Exchanges exchanges(ranks, GetParam());
    how.exchange = exchanges.exchange();
    std::map<std::string, graph::Tensor> own = inputs;
    for (const auto& [name, s] : split.inputs) own[name] = graph::part_of(own.at(name), s, 2, ranks.rank());
    own[graph::kTensorRank] = {{{}, {Scalar::i32, nullptr}}, {static_cast<double>(ranks.rank())}, {}};
    const auto program = run_once(engine, local, own, how);
    for (const char* name : {"loss", "norm", "wo"}) got[ranks.rank()][name] = floats_of(program->result(name));
    EXPECT_EQ(exchanges.under_way(), 0U);
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
INSTANTIATE_TEST_SUITE_P(Ways, ExchangesOf, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "AsLateAsTheyMay" : "AtOnce"; });

}  // namespace
}  // namespace lumen::run
