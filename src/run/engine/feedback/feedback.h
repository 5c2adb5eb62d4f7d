// Rounding with error feedback (GPTQ) on a device, for any number format: panels of columns by a kernel derived from
// the format's text (kernel/synth/encode/feedback.h), error propagation between panels by matrix products.
//
// May include: base, base/threads, graph/ir, kernel/loop/eval, kernel/synth/encode, number/codec, run/engine,
// run/engine/verify/launch_trial, run/engine/verify/lone_steps.
// Offers: first_not_finite.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernel/synth/encode/feedback.h"
#include "run/engine/engine.h"

namespace lumen::run {

struct FeedbackOptions {
  bool weighs = false;    // fits use the importance of columns (formats with fit(x, w))
  bool in_order = false;  // columns in an order given per matrix, with fields fitted before (act-order)
};

// Whether columns of the format can be rounded in any order (in_order).
bool rounds_in_order(const Format& f);

// Tiling of columns: panels of `panel`, stretches of `stretch` (whole panels), `padded` columns in all with zero
// padding. Products are between stretches, and from a stretch's own columns to a panel.
struct FeedbackTiling {
  int64_t columns = 0, panel = 0, stretch = 0, padded = 0;
  friend bool operator==(const FeedbackTiling&, const FeedbackTiling&) = default;
};
FeedbackTiling feedback_tiling(const Format& f, int64_t columns, const FeedbackOptions& options);

// U on a device, cut into tiles; shared by all matrices with the same input activations and tiling.
class FeedbackMatrix {
 public:
  // u: columns x columns, row-major, in rounding order; only the part strictly above the diagonal is read. Error if
  // that is not finite.
  FeedbackMatrix(Engine& engine, std::span<const float> u, const FeedbackTiling& tiling);
  static int64_t bytes(const FeedbackTiling& tiling);
  const FeedbackTiling& tiling() const { return tiling_; }
  // Between stretches s < t [stretch, stretch]; from a stretch's columns before the panel to panel p of all [stretch,
  // panel]; within panel p [panel, panel].
  const DeviceTensorRef& between(int64_t s, int64_t t) const { return between_[s * stretches_ + t]; }
  const DeviceTensorRef& before(int64_t p) const { return before_[p]; }
  const DeviceTensorRef& within(int64_t p) const { return within_[p]; }

 private:
  FeedbackTiling tiling_;
  int64_t stretches_ = 0;
  std::vector<DeviceTensorRef> between_, before_, within_;
};

struct RoundedMatrix {
  std::vector<uint8_t> blob;
  std::vector<float> values;  // decoded, rows x columns
  double squared_error = 0;   // of all values; row sums are added in order
};

// Rounds matrices of one shape into one format. Same bits for any thread count. Not thread-safe.
class FeedbackRounder {
 public:
  // Error (exit 1) for decode-only formats, and with in_order for formats whose codes need more than the fields.
  FeedbackRounder(Engine& engine, FormatRef f, int64_t rows, int64_t columns, FeedbackOptions options);
  ~FeedbackRounder();

  const FeedbackTiling& tiling() const;
  MemoryNeeds needs() const;  // of run(), on the device

  struct Input {
    std::span<const float> w;           // rows x columns, finite
    DeviceTensorRef on_device = {};     // the same on the device, if it is already there
    std::span<const float> importance;  // one per column, with FeedbackOptions::weighs
    std::span<const int32_t> order;     // the column at each position, with in_order
    std::span<const uint8_t> rounded;   // w by Engine::encode with that importance, if already computed
  };
  RoundedMatrix run(const Input& input, const FeedbackMatrix& u);
  // The same without error propagation: codes for the existing fields.
  RoundedMatrix run(const Input& input);

 private:
  RoundedMatrix run(const Input& input, const FeedbackMatrix* u);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lumen::run
