// Weights rounded with error feedback by the second moments H = X^T X of what they are multiplied with (GPTQ; equal to
// LDLQ), into any format that encodes. Proved by tests/model/compress/round/gptq_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/compress/round/cholesky.h"
#include "model/compress/round/output_error.h"
#include "run/engine/feedback/feedback.h"

namespace lumen::model {

struct MomentsOptions {
  double damping = 0.01;    // times the mean of H's diagonal, added to the diagonal
  double most_damping = 1;  // where H with damping is not positive definite, ten times as much is tried, up to this
  bool act_order = false;   // columns by falling H_cc, under fields fitted before
  // Rows that H is a sum over; 0: enough. With fewer than columns (weights of a mixture that few rows reach) damping is
  // that many times larger, at most most_damping.
  int64_t samples = 0;
  FactorMethod method = FactorMethod::automatic;
};

// H made ready: dead columns, order, factor. Shared by all weights that read the same activations.
class Moments {
 public:
  // h [columns, columns], symmetric; it must live as long. Error where it is not finite or has a negative diagonal,
  // where it is zero (no row reached these weights), and where no damping up to the limit makes it positive definite.
  Moments(run::Engine& engine, std::span<const float> h, int64_t columns, const MomentsOptions& options);
  ~Moments();

  int64_t columns() const { return columns_; }
  const std::vector<int32_t>& order() const { return order_; }  // empty: from left to right
  const std::vector<int64_t>& dead() const { return dead_; }    // always 0: weights there go to nearest
  double damping() const { return damping_; }                   // that was needed, of the mean of the diagonal
  const Factor& factor() const { return factor_; }              // in that order, of H with damping
  // What people should know: dead columns, more damping than was asked for. Empty: nothing.
  const std::string& remark() const { return remark_; }
  std::vector<float> diagonal() const;  // of H, as importance of columns; dead ones 0

 private:
  friend class Gptq;
  const run::FeedbackMatrix& feedback(run::Engine& engine, const run::FeedbackTiling& tiling);
  const run::DeviceTensorRef& on_device(run::Engine& engine);  // H without damping
  // W C H^-1 needs both; made at first use.
  const run::DeviceTensorRef& inverse_over_d(run::Engine& engine);
  const run::DeviceTensorRef& inverse_factor(run::Engine& engine);
  void make_inverse(run::Engine& engine);

  int64_t columns_;
  std::span<const float> h_;
  std::vector<int32_t> order_;
  std::vector<int64_t> dead_;
  double damping_ = 0;
  Factor factor_;
  std::string remark_;
  std::vector<std::unique_ptr<run::FeedbackMatrix>> feedback_;
  run::DeviceTensorRef device_, inverse_over_d_, inverse_;
};

struct GptqOptions {
  bool weighs = false;   // fits of blocks see H's diagonal as importance (formats with fit(x, w))
  bool measures = true;  // errors before and after, and the better one taken; two products as large as the feedback's
  bool by_rows = false;  // errors of each row, too
  // [columns, columns], (X_reference - X)^T X summed: X_reference is what the weight reads before anything is rounded,
  // X (whose moments these are) what it reads now. The weight then moves to W + W C H^-1, which answers the difference
  // (GPTAQ), before it is rounded. Empty: X is all there is.
  std::span<const float> difference = {};
  // A blob of this shape whose fields above blocks are kept as they are (of the weight that this one is a part of).
  // Empty: they are fitted to the weight.
  std::span<const uint8_t> under = {};
};

struct GptqResult {
  std::vector<uint8_t> blob;
  std::vector<float> values;     // decoded, [rows, columns]
  std::vector<float> target;     // with a difference: what was rounded, [rows, columns]
  double before = 0, after = 0;  // tr(E H E^T) rounding to nearest, and as it is now; E is the target less values
  bool is_nearest = false;       // feedback was measured to gain nothing (scales of the largest number at few bits)
  std::vector<double> before_rows, after_rows;
};

// Rounds weights; keeps what it compiled for shapes it has seen. Not thread-safe; the engine outlives it.
class Gptq {
 public:
  explicit Gptq(run::Engine& engine) : engine_(engine), output_errors_(engine) {}
  ~Gptq();
  // w [rows, moments.columns()], finite. Errors of FeedbackRounder, too: act_order and formats without it.
  GptqResult round(const FormatRef& format, std::span<const float> w, int64_t rows, Moments& moments,
                   const GptqOptions& options = {});

 private:
  std::vector<float> moved(std::span<const float> w, int64_t rows, Moments& moments, std::span<const float> difference);

  run::Engine& engine_;
  std::map<std::tuple<std::string, int64_t, int64_t, bool, bool>, std::unique_ptr<run::FeedbackRounder>> rounders_;
  OutputErrors output_errors_;
};

}  // namespace lumen::model
