// needs: none. What a run decides on is in its checkpoints, exactly; what is damaged is an error.
#include "model/train/trainer/run_state.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::model::train {
namespace {

using nlohmann::json;

TEST(RunState, BatchesAreLeftOut) {
  RunState s;
  EXPECT_EQ(s.batch_of(7), 7);
  s.skip(3);
  s.skip(4);
  s.skip(9);
  s.skip(4);
  EXPECT_EQ(s.skipped, (std::vector<int64_t>{3, 4, 9}));
  std::vector<int64_t> read;
  for (int64_t step = 0; step < 9; ++step) read.push_back(s.batch_of(step));
  EXPECT_EQ(read, (std::vector<int64_t>{0, 1, 2, 5, 6, 7, 8, 10, 11}));
}

TEST(RunState, ComesBackExactly) {
  RunState s;
  for (int i = 0; i < 70; ++i) s.push(1.0 / (i + 3), 0.1 * i);
  ASSERT_EQ(s.losses.size(), RunState::kWindow);
  s.skip(5);
  s.rollbacks = 2;
  s.failed_at = 8;
  s.width = 4;
  s.best = 1.0 / 3;
  s.best_step = 6;
  s.stale = 1;
  s.evaluated_at = 8;
  const json more = {{"run", json::parse(to_json(s).dump())}};
  const RunState back = run_state_of(more, "t");
  EXPECT_EQ(to_json(back), to_json(s));
  EXPECT_EQ(back.losses, s.losses);
  EXPECT_EQ(back.best, s.best);
  EXPECT_EQ(to_json(run_state_of(json::object(), "t")), to_json(RunState())) << "older checkpoints have none";
}

TEST(RunState, DamageIsNamed) {
  const json good = to_json(RunState());
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"skipped", {3, 2}},
                                                                            {"skipped", {-1}},
                                                                            {"skipped", {1.5}},
                                                                            {"skipped", {1, 1}},
                                                                            {"skipped", "x"},
                                                                            {"losses", {"x"}},
                                                                            {"losses", json::array({1}).dump()},
                                                                            {"norms", std::vector<int>(51, 1)},
                                                                            {"rollbacks", -1},
                                                                            {"width", 1e300},
                                                                            {"failed_at", -2},
                                                                            {"best", "low"},
                                                                            {"stale", nullptr}}) {
    json run = good;
    run[key] = value;
    try {
      (void)run_state_of({{"run", run}}, "state.json");
      ADD_FAILURE() << key << value;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("state.json"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(run_state_of({{"run", 5}}, "t"), Error);
}

TEST(RunState, BatchesThatMayBeLeftOut) {
  EXPECT_EQ(RunState::most_skipped(0), 0);
  EXPECT_EQ(RunState::most_skipped(3), 1 + 2 + 4);
  EXPECT_EQ(RunState::most_skipped(18), (1 << 16) - 1 + 2 * (1 << 16));
  EXPECT_GT(RunState::most_skipped(INT64_MAX), 0);
}

}  // namespace
}  // namespace lumen::model::train
