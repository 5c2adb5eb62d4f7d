// Strategies: algorithms that round a weight's numbers to a format. Each is one file; each works with every format that
// has an encoder, and reports those it does not support. A strategy declares the input statistics it needs (observes),
// and then rounds; equivalent changes of a layer come before (prepare/preparation.h).
//
// May include: base, base/threads, graph/transform, model/calibrate, model/compress/equivalent_transform,
// model/compress/reconstruction, model/compress/round, number/format, run/engine, run/engine/feedback.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/transform/taps.h"
#include "model/calibrate/layer_run.h"
#include "model/compress/reconstruction/reconstruction.h"
#include "model/compress/round/output_error.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

// Numbers that users may set (`--strategy-option NAME=VALUE`); each strategy documents those it uses.
struct StrategyOptions {
  double damping = 0.01;            // of Hessians: this times the mean of the diagonal is added to it
  bool act_order = false;           // columns by descending importance
  double norm = 0.7;                // p of the norm of sparse errors
  int iterations = 20;              // of half-quadratic splitting
  double smoothing_strength = 0.5;  // share of the outliers that moves from activations into weights
  // Rounding learned layer by layer; 0: the strategy's default.
  int steps = 0;
  double rate = 0;
  int64_t step_windows = 8;  // windows of the text per step
};

// One weight to be rounded: a matrix, or a stack of consecutive matrices.
struct RoundingTask {
  std::string name;                             // for messages
  int64_t matrices = 1, rows = 0, columns = 0;  // rows of one matrix
  FormatRef format;
  std::span<const float> values;
  const calibrate::TapSums* reads = nullptr;  // input statistics of the weight; null: none

  int64_t all_rows() const { return matrices * rows; }
  std::span<const float> matrix(int64_t m) const { return values.subspan(m * rows * columns, rows * columns); }
  // The input's gram of matrix m, [columns, columns]; empty where not known, or no row reached it.
  std::span<const float> gram(int64_t m) const;
  std::span<const float> cross(int64_t m) const;
  // The number of rows summed for matrix m.
  int64_t rows_read(int64_t m) const;
  // Mean squares of the columns; empty likewise.
  std::vector<float> squares(int64_t m) const;
  // The same for encoding: by column, or by element for stacked matrices; empty where nothing is known. `unreached`:
  // matrices without rows, whose elements have equal weight.
  std::vector<float> importance(int64_t* unreached = nullptr) const;
};

struct Rounding {
  std::vector<uint8_t> blob;
  std::vector<float> values;  // decoded
  std::string remark;         // for the report on this weight
};

// All weights of a layer, in the order of the tasks.
struct BlockRounding {
  std::vector<Rounding> weights;
  double before = 0, after = 0;  // the layer's relative squared output error: rounded to nearest, and like this
};

// Rounds the weights of a model; caches programs, and data that weights of one part share.
class Rounder {
 public:
  virtual ~Rounder() = default;
  // Tasks of another part follow: the previous input statistics are no longer valid.
  virtual void begin_part() {}
  virtual Rounding round(const RoundingTask& task) = 0;
  // Strategies that round by blocks get all weights of a layer, in the objective's order.
  virtual BlockRounding round_block(BlockObjective& objective, std::span<const RoundingTask> tasks,
                                    const LearnProgress& progress);
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view about() const = 0;  // one line
  virtual graph::TapKinds observes() const { return {}; }
  // Why it does not support a format; nullopt where it does.
  virtual std::optional<std::string> refuses(const Format&, const StrategyOptions&) const { return std::nullopt; }
  // Whether weights of a layer are rounded together, by the layer's output error; round() is then for weights outside
  // of layers.
  virtual bool by_blocks() const { return false; }
  virtual std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions& options) const = 0;
};

// All, in the order in which help lists them.
const std::vector<const Strategy*>& strategies();
// Error (usage) with the known names.
const Strategy& find_strategy(const std::string& name);

// Relative output error of rounding: the square root of the sum over rows of e G e^T divided by that of w G w^T, where
// G is the input's gram. Matrices with more than kRows rows are sampled evenly.
class TaskErrors {
 public:
  static constexpr int64_t kRows = 1024;
  explicit TaskErrors(run::Engine& engine) : errors_(engine) {}
  // nullopt without input statistics.
  std::optional<double> relative(const RoundingTask& task, std::span<const float> rounded);
  void forget();  // the tasks' input statistics are no longer valid

 private:
  OutputErrors errors_;
  run::DeviceTensorRef gram_;  // of the last task
  const float* gram_of_ = nullptr;
};

}  // namespace lumen::model::compress
