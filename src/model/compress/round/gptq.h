// Rounds weights with error feedback using the second moments H = X^T X of their inputs (GPTQ; equivalent to LDLQ),
// into any format with an encoder. Proved by tests/model/compress/round/gptq_test.cpp.
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

namespace lumen::model::compress {

struct MomentsOptions {
  double damping = 0.01;    // times the mean of H's diagonal, added to the diagonal
  double most_damping = 1;  // where damped H is not positive definite, damping is raised tenfold up to this
  bool act_order = false;   // columns by descending H_cc, with fields fitted in advance
  // Number of rows summed in H; 0: enough. With fewer rows than columns (experts that few tokens reach) damping is
  // larger by that ratio, at most most_damping.
  int64_t samples = 0;
  FactorMethod method = FactorMethod::automatic;
};

// A factorized H: dead columns, order, factor. Shared by all weights with the same input.
class Moments {
 public:
  // h [columns, columns], symmetric; it must outlive this. Error where it is not finite or has a negative diagonal,
  // where it is zero (no row reached these weights), and where no damping up to the limit makes it positive definite.
  Moments(run::Engine& engine, std::span<const float> h, int64_t columns, const MomentsOptions& options);
  ~Moments();

  int64_t columns() const { return columns_; }
  const std::vector<int32_t>& order() const { return order_; }  // empty: from left to right
  const std::vector<int64_t>& dead() const { return dead_; }    // inputs always 0: weights there are rounded to nearest
  double damping() const { return damping_; }                   // the damping used, times the mean of the diagonal
  const Factor& factor() const { return factor_; }              // in that order, of H with damping
  // For the report: dead columns, more damping than requested. Empty: none.
  const std::string& remark() const { return remark_; }
  std::vector<float> diagonal() const;  // of H, as importance of columns; 0 for dead ones

 private:
  friend class Gptq;
  const run::FeedbackMatrix& feedback(run::Engine& engine, const run::FeedbackTiling& tiling);
  const run::DeviceTensorRef& on_device(run::Engine& engine);  // H without damping
  // W C H^-1 needs both; computed at first use.
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
  bool weighs = false;   // block fits use H's diagonal as importance (formats with fit(x, w))
  bool measures = true;  // measures both errors and takes the better; two products of the feedback's size
  bool by_rows = false;  // also errors of each row
  // [columns, columns], the sum of (X_reference - X)^T X: X_reference is the weight's input in the unrounded model, X
  // (whose moments these are) its current input. The weight is then moved to W + W C H^-1, which compensates the
  // difference (GPTAQ), before it is rounded. Empty: no X_reference.
  std::span<const float> difference = {};
  // A blob of this shape whose fields above block level are kept (of the weight that contains this one). Empty: they
  // are fitted to the weight.
  std::span<const uint8_t> under = {};
};

struct GptqResult {
  std::vector<uint8_t> blob;
  std::vector<float> values;     // decoded, [rows, columns]
  std::vector<float> target;     // with a difference: the moved weight that was rounded, [rows, columns]
  double before = 0, after = 0;  // tr(E H E^T) of rounding to nearest, and of the result; E = target - values
  bool is_nearest = false;       // feedback measured no gain (max-based scales at few bits)
  std::vector<double> before_rows, after_rows;
};

// Rounds weights; caches programs by shape. Not thread-safe; the engine outlives it.
class Gptq {
 public:
  explicit Gptq(run::Engine& engine) : engine_(engine), output_errors_(engine) {}
  ~Gptq();
  // w [rows, moments.columns()], finite. Throws as FeedbackRounder, too: for act_order with formats that lack it.
  GptqResult round(const FormatRef& format, std::span<const float> w, int64_t rows, Moments& moments,
                   const GptqOptions& options = {});

 private:
  std::vector<float> moved(std::span<const float> w, int64_t rows, Moments& moments, std::span<const float> difference);

  run::Engine& engine_;
  std::map<std::tuple<std::string, int64_t, int64_t, bool, bool>, std::unique_ptr<run::FeedbackRounder>> rounders_;
  OutputErrors output_errors_;
};

}  // namespace lumen::model::compress
