// The values of a page without nulls, in order, for any encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "model/data/parquet/footer.h"

namespace lumen::model::data::parquet {

// Integers (sign-extended), the bits of floating-point numbers, or bytes, by the column's type. The bytes are in the
// page, or in its reader until the next value.
struct Value {
  uint64_t bits = 0;
  std::string_view bytes = {};
};

class ValueReader {
 public:
  ValueReader() = default;
  ValueReader(const ValueReader&) = delete;
  ValueReader& operator=(const ValueReader&) = delete;
  virtual ~ValueReader() = default;
  virtual Value next() = 0;  // Error at the end
};

// The values that a page's dictionary indices refer to.
class Dictionary {
 public:
  Dictionary() = default;
  Dictionary(const Leaf& leaf, std::string_view page, uint64_t count);  // the page must outlive this
  Value at(uint32_t index) const;
  size_t held() const { return begins_.capacity() * sizeof(uint32_t); }

 private:
  Physical type_ = Physical::boolean;
  std::string_view page_;
  uint64_t count_ = 0;
  size_t width_ = 0;              // of values of fixed length
  std::vector<uint32_t> begins_;  // of variable-length values
};

// Error when the encoding does not suit the column. `page` starts after the levels.
std::unique_ptr<ValueReader> read_values(int64_t encoding, const Leaf& leaf, std::string_view page,
                                         const Dictionary* dictionary);

// Converts to JSON as in rows; false for a text that is not valid UTF-8.
bool to_json(const Leaf& leaf, const Value& value, nlohmann::ordered_json* out);

}  // namespace lumen::model::data::parquet
