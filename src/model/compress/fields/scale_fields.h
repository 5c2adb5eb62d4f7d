// Which fields of a format multiply what is decoded: those that, all of them times a number, give the decoded values
// times that number, while codes stay as they are. Found by what decoding gives, so that it holds for every way in
// which a format may be written. Proved by tests/model/compress/fields/scale_fields_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "number/format/format.h"

namespace lumen::model {

struct ScaleFields {
  Level level = Level::block;
  std::vector<int> fields;     // of the format
  int64_t count = 1;           // entries of each field in a record; entries of one number belong together
  std::vector<int32_t> entry;  // at the level of blocks: which entry an element of a block is multiplied by
};

// The finest level whose fields are floats with a mantissa. `why`: what users are told where there is none.
std::optional<ScaleFields> find_scale_fields(const Format& f, std::string* why);

// A matrix in a format, whose groups (what one entry multiplies) may be multiplied.
class ScaledBlob {
 public:
  ScaledBlob(FormatRef f, ScaleFields scales, int64_t rows, int64_t columns, std::span<const uint8_t> blob);

  int64_t groups() const { return records_ * scales_.count; }
  // The blob with the fields of each group times a factor, in the fields' own precision; codes are as they were.
  std::vector<uint8_t> times(std::span<const float> factors) const;
  // Sums of x y over the elements of each group, in order.
  std::vector<float> sums(std::span<const float> x, std::span<const float> y) const;

 private:
  int64_t place(int64_t record) const;  // in the blob

  const FormatRef format_;
  const ScaleFields scales_;
  const int64_t rows_, columns_;
  const std::span<const uint8_t> blob_;
  BlobLayout layout_;
  int64_t records_ = 1;
};

}  // namespace lumen::model
