// What a run knows besides its weights, moments and number of steps, kept in its checkpoints so that a resumed run
// decides as the uninterrupted one would have: batches that are left out, the last losses (what a spike is measured
// by), and the best evaluation. Proved by tests/model/train/run_state_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lumen::model {

struct RunState {
  static constexpr size_t kWindow = 50;  // steps that medians are taken over

  std::vector<int64_t> skipped;       // batches that are left out, by their number without any left out; rising
  int64_t rollbacks = 0;              // so far
  int64_t failed_at = -1;             // the step that the last one was made for
  int64_t width = 0;                  // batches it left out
  std::vector<double> losses, norms;  // of the last steps, the latest last

  std::optional<double> best;  // of the figure that is watched
  int64_t best_step = -1;
  int64_t stale = 0;          // evaluations since
  int64_t evaluated_at = -1;  // the last step after which it was evaluated

  // The number of the batch that the step after `step` steps reads.
  int64_t batch_of(int64_t step) const;
  void skip(int64_t batch);
  // How many batches a run may leave out that goes back so often: twice as many each time, up to kWidest at once.
  static constexpr int64_t kWidest = 1 << 16;
  static int64_t most_skipped(int64_t rollbacks);
  void push(double loss, double norm);
};

nlohmann::json to_json(const RunState& state);
// Error when `more` holds something else under "run"; a state as of the beginning when it holds nothing.
RunState run_state_of(const nlohmann::json& more, const std::string& where);

}  // namespace lumen::model
