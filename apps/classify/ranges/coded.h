// Values as 8-bit integers with a scale and a zero point for each sample, or for each channel of one; and operations on
// them: decode, encode, and requantize from one pair per channel to one pair per sample.
#pragma once

#include "apps/classify/ranges/formula_of.h"
#include "graph/ir/build.h"

namespace lumen::graph {

inline constexpr double kLeastScale = 1e-20;  // unless the range has only zeros; then the scale is 1

struct Coded {
  ValueId codes = -1;  // i8
  ValueId scale = -1;  // f32 [samples] or [samples, channels]
  ValueId zero = -1;   // i32, same shape
  int64_t samples = 1;
  int64_t channels = 0;      // 0: one pair for a sample; otherwise the last axes of the value are the channels
  bool is_positive = false;  // no number is below 0
};

// The ends of a range, f32, of equal shape.
struct Ends {
  ValueId low = -1, high = -1;
};

class Coder {
 public:
  explicit Coder(Builder& b) : b_(b) {}

  // Reshapes [samples] or [samples, channels] so that it broadcasts over a value of this shape.
  ValueId spread(ValueId v, int64_t samples, int64_t channels, const Shape& shape);
  // Extends a range to include 0, as s and z of section 1 of the paper require: 0 has an exact code.
  Ends with_zero(const Ends& ends);
  ValueId scale_of(const Ends& ends);                // f32, of a range with zero
  ValueId zero_of(const Ends& ends, ValueId scale);  // i32
  ValueId real(const Coded& c);
  Coded encode(ValueId x, int64_t samples, const Ends& ends);  // one scale and zero point per sample
  Coded relu(const Coded& c);
  Coded per_tensor(const Coded& c);
  Ends ends_of(const Coded& c);     // [samples]: the range the codes can represent, over all channels
  ValueId centred(const Coded& c);  // i16: codes minus zero points
  // Pads codes (one pair per sample) of a view of c that keeps samples first, like the old pad node: with the zero
  // point.
  ValueId padded(ValueId codes, const Coded& c, const Node& pad);
  // Over all axes but the samples', [samples].
  ValueId over_samples(ValueId v, Reduction r, int64_t samples);

 private:
  Builder& b_;
};

}  // namespace lumen::graph
