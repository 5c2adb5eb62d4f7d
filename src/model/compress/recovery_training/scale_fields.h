// Finds the scale fields of a format: those that, multiplied together by a number, multiply the decoded values by that
// number with unchanged codes. Found by decoding, so any formulation of a format works. Proved by
// tests/model/compress/recovery_training/scale_fields_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "number/format/format.h"

namespace lumen::model::compress {

struct ScaleFields {
  Level level = Level::block;
  std::vector<int> fields;     // of the format
  int64_t count = 1;           // entries of each field in a record; equal entry numbers form one scale
  std::vector<int32_t> entry;  // at block level: the entry that scales each element of a block
};

// The finest level whose fields are floats with a mantissa. `why`: the message for users where there is none.
std::optional<ScaleFields> find_scale_fields(const Format& f, std::string* why);

// A matrix in a format, whose scale groups (the elements of one entry) can be multiplied.
class ScaledBlob {
 public:
  ScaledBlob(FormatRef f, ScaleFields scales, int64_t rows, int64_t columns, std::span<const uint8_t> blob);

  int64_t groups() const { return records_ * scales_.count; }
  // The blob with each group's fields times a factor, rounded to the fields' precision; codes are unchanged.
  std::vector<uint8_t> times(std::span<const float> factors) const;
  // Sums of x y over the elements of each group, in a fixed order.
  std::vector<float> sums(std::span<const float> x, std::span<const float> y) const;

 private:
  int64_t place(int64_t record) const;  // byte offset in the blob

  const FormatRef format_;
  const ScaleFields scales_;
  const int64_t rows_, columns_;
  const std::span<const uint8_t> blob_;
  BlobLayout layout_;
  int64_t records_ = 1;
};

}  // namespace lumen::model::compress
