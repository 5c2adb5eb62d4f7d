// Rounding with error feedback on a device, for any number format: panels of columns by a kernel derived from the
// format's text (kernel/synth/encode/feedback.h), what columns before them lost by products of matrices.
//
// May include: base, base/threads, graph/ir, kernel/loop/eval, kernel/synth/encode, number/codec, run/engine,
// run/engine/launch_trial, run/engine/lone_steps.
// Offers: first_not_finite.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernel/synth/encode/feedback.h"
#include "run/engine/engine.h"

namespace lumen::run {

struct FeedbackOptions {
  bool weighs = false;    // fits know how much columns count (formats with fit(x, w))
  bool in_order = false;  // columns in an order given with each matrix, under fields fitted before (act-order)
};

// Whether columns of the format can be rounded in any order (in_order).
bool rounds_in_order(const Format& f);

// How columns are cut: panels of `panel`, stretches of `stretch` (whole panels), all of which are `padded` columns, the
// last ones zeros. Products are between stretches, and from a stretch's own columns to a panel.
struct FeedbackTiling {
  int64_t columns = 0, panel = 0, stretch = 0, padded = 0;
  friend bool operator==(const FeedbackTiling&, const FeedbackTiling&) = default;
};
FeedbackTiling feedback_tiling(const Format& f, int64_t columns, const FeedbackOptions& options);

// U on a device, cut by a tiling; shared by all matrices that read the same activations in formats of one tiling.
class FeedbackMatrix {
 public:
  // u: columns x columns, row-major, in the order in which columns are rounded; read strictly above the diagonal. Error
  // where that is not finite.
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
  double squared_error = 0;   // of all values; sums of rows in order
};

// Rounds matrices of one shape into one format. Same bits at any thread count. Not thread-safe.
class FeedbackRounder {
 public:
  // Error (exit 1) for formats that only decode, and for orders of columns where the format's codes need more than its
  // fields.
  FeedbackRounder(Engine& engine, FormatRef f, int64_t rows, int64_t columns, FeedbackOptions options);
  ~FeedbackRounder();

  const FeedbackTiling& tiling() const;
  MemoryNeeds needs() const;  // of run(), on the device

  struct Input {
    std::span<const float> w;           // rows x columns, finite
    DeviceTensorRef on_device = {};     // the same on the device, if it is there already
    std::span<const float> importance;  // one per column, with FeedbackOptions::weighs
    std::span<const int32_t> order;     // the column at each position, with in_order
    std::span<const uint8_t> rounded;   // w by Engine::encode with that importance, if it is there already
  };
  RoundedMatrix run(const Input& input, const FeedbackMatrix& u);
  // The same where no column passes anything on: codes under the fields there are.
  RoundedMatrix run(const Input& input);

 private:
  RoundedMatrix run(const Input& input, const FeedbackMatrix* u);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lumen::run
