// State of a run in addition to weights, moments and step count. It is kept in checkpoints so that a resumed run
// decides as the uninterrupted one would have: skipped batches, the last losses (the reference for spikes), and the
// best evaluation. Proved by tests/model/train/run_state_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lumen::model::train {

struct RunState {
  static constexpr size_t kWindow = 50;  // steps in the median

  std::vector<int64_t> skipped;       // skipped batches, numbered as if none were skipped; ascending
  int64_t rollbacks = 0;              // so far
  int64_t failed_at = -1;             // the step whose failure caused the last rollback
  int64_t width = 0;                  // batches it skipped
  std::vector<double> losses, norms;  // of the last steps, newest last

  std::optional<double> best;  // of the watched metric
  int64_t best_step = -1;
  int64_t stale = 0;          // evaluations since the best
  int64_t evaluated_at = -1;  // the last step with an evaluation

  // The number of the batch that the step after `step` steps reads.
  int64_t batch_of(int64_t step) const;
  void skip(int64_t batch);
  // The most batches that a run with this many rollbacks may skip: doubled each time, up to kWidest at once.
  static constexpr int64_t kWidest = 1 << 16;
  static int64_t most_skipped(int64_t rollbacks);
  void push(double loss, double norm);
};

nlohmann::json to_json(const RunState& state);
// Error when the value under "run" in `more` is malformed; an initial state when there is none.
RunState run_state_of(const nlohmann::json& more, const std::string& where);

}  // namespace lumen::model::train
