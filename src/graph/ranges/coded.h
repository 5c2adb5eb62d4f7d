// Values held as 8-bit whole numbers with a scale and a zero for each sample, or for each channel of one; and the
// small algebra on them: real numbers from codes, codes from real numbers, codes of one pair from codes of many.
#pragma once

#include "graph/ir/build.h"
#include "graph/ranges/formula_of.h"

namespace lumen::graph {

inline constexpr double kLeastScale = 1e-20;  // where there is anything but zeros; of those alone it is 1

struct Coded {
  ValueId codes = -1;  // i8
  ValueId scale = -1;  // f32 [samples] or [samples, channels]
  ValueId zero = -1;   // i32, alike
  int64_t samples = 1;
  int64_t channels = 0;      // 0: one pair for a sample; otherwise the last axes of the value are these
  bool is_positive = false;  // no number is below 0
};

// The ends of a range, f32, shaped alike.
struct Ends {
  ValueId low = -1, high = -1;
};

class Coder {
 public:
  explicit Coder(Builder& b) : b_(b) {}

  // [samples] or [samples, channels] so that it meets a value of this shape element by element.
  ValueId spread(ValueId v, int64_t samples, int64_t channels, const Shape& shape);
  // s and z of section 1: 0 is among the range, and has a code.
  Ends with_zero(const Ends& ends);
  ValueId scale_of(const Ends& ends);                // f32, of a range with zero
  ValueId zero_of(const Ends& ends, ValueId scale);  // i32
  ValueId real(const Coded& c);
  Coded encode(ValueId x, int64_t samples, const Ends& ends);  // one pair for a sample
  Coded relu(const Coded& c);
  Coded per_tensor(const Coded& c);
  Ends ends_of(const Coded& c);     // [samples]: what the codes can say, over all channels
  ValueId centred(const Coded& c);  // i16: codes minus zeros
  // Codes of one pair for a sample, of a view of c that keeps samples first, as the old node pads them: with zeros.
  ValueId padded(ValueId codes, const Coded& c, const Node& pad);
  // Over all axes but the samples', [samples].
  ValueId over_samples(ValueId v, Reduction r, int64_t samples);

 private:
  Builder& b_;
};

}  // namespace lumen::graph
