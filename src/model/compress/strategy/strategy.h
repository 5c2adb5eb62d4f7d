// Strategies: ways from a weight's numbers to numbers that a format can hold. Each is one file; each works with every
// format that can be written, and says which it cannot take. What a strategy needs to know of the inputs of a weight it
// asks for (observe), what it may change of a layer without changing what the layer computes it changes before
// (transform), and then it rounds (convert).
//
// May include: base, base/threads, graph/transform, model/calibrate, model/compress/recover, model/compress/rewrite,
// model/compress/round, number/format, run/engine, run/engine/feedback.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/transform/taps.h"
#include "model/calibrate/layer_run.h"
#include "model/compress/recover/recover.h"
#include "model/compress/round/output_error.h"
#include "run/engine/engine.h"

namespace lumen::model {

// Numbers that users may set (`--strategy-option NAME=VALUE`); each strategy names those it knows.
struct StrategyOptions {
  double damping = 0.01;            // of Hessians: part of the mean of the diagonal that is added to it
  bool act_order = false;           // columns in the order of their importance
  double norm = 0.7;                // p of the norm that sparse errors are measured by
  int iterations = 20;              // of half-quadratic splitting
  double smoothing_strength = 0.5;  // how much of what stands out goes from activations into weights
  // Rounding learned layer by layer; 0: what the strategy usually takes.
  int steps = 0;
  double rate = 0;
  int64_t step_windows = 8;  // windows of the text that a step looks at
};

// One weight to be rounded: one matrix, or a stack of them one behind the other.
struct RoundingTask {
  std::string name;                             // for messages
  int64_t matrices = 1, rows = 0, columns = 0;  // rows of one matrix
  FormatRef format;
  std::span<const float> values;
  const TapSums* reads = nullptr;  // what is known of what the weight is multiplied with; null: nothing

  int64_t all_rows() const { return matrices * rows; }
  std::span<const float> matrix(int64_t m) const { return values.subspan(m * rows * columns, rows * columns); }
  // Sums of products of columns of what matrix m reads, [columns, columns]; empty where unknown, or no row reached it.
  std::span<const float> gram(int64_t m) const;
  std::span<const float> cross(int64_t m) const;
  // How many rows the sums of matrix m are of.
  int64_t rows_read(int64_t m) const;
  // Mean squares of the columns; empty likewise.
  std::vector<float> squares(int64_t m) const;
  // The same for encoding: of columns, or of each element where matrices are stacked; empty where nothing is known.
  // `unreached`: matrices that no row reached, whose elements count alike.
  std::vector<float> importance(int64_t* unreached = nullptr) const;
};

struct Rounding {
  std::vector<uint8_t> blob;
  std::vector<float> values;  // what it decodes to
  std::string remark;         // what users should know of this weight
};

// All weights of a layer, in the order of the tasks.
struct BlockRounding {
  std::vector<Rounding> weights;
  double before = 0, after = 0;  // what the layer hands on: relative squared error, rounded to nearest and like this
};

// Rounds the weights of a model; keeps what it compiled, and what weights of one part share.
class Rounder {
 public:
  virtual ~Rounder() = default;
  // Tasks of another part follow: what is known of what weights read is no longer there.
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
  // Why it cannot take a format; nothing where it can.
  virtual std::optional<std::string> refuses(const Format&, const StrategyOptions&) const { return std::nullopt; }
  // Whether weights of a layer are rounded together, by what the layer hands on; round() is then for weights that lie
  // in no layer.
  virtual bool by_blocks() const { return false; }
  virtual std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions& options) const = 0;
};

// All, in the order in which help lists them.
const std::vector<const Strategy*>& strategies();
// Error (usage) with the known names.
const Strategy& find_strategy(const std::string& name);

// The error of outputs that rounding causes: sum over rows of e G e^T relative to that of w G w^T, under a root, where
// G is the gram of what is read. Of matrices with more than kRows rows so many stand for all, evenly spread.
class TaskErrors {
 public:
  static constexpr int64_t kRows = 1024;
  explicit TaskErrors(run::Engine& engine) : errors_(engine) {}
  // Nothing where what is read is unknown.
  std::optional<double> relative(const RoundingTask& task, std::span<const float> rounded);
  void forget();  // what tasks read is no longer there

 private:
  OutputErrors errors_;
  run::DeviceTensorRef gram_;  // of the last task
  const float* gram_of_ = nullptr;
};

}  // namespace lumen::model
