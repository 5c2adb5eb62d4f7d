// The values of a page, nulls left out, one after another, whatever they are encoded by.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "model/data/parquet/footer.h"

namespace lumen::model::parquet {

// Integers (their sign extended) and the bits of floating-point numbers, or bytes, as the column's type says. The bytes
// lie in the page, or in its reader until the next value.
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
  virtual Value next() = 0;  // Error when there is none
};

// The values that a page's numbers stand for.
class Dictionary {
 public:
  Dictionary() = default;
  Dictionary(const Leaf& leaf, std::string_view page, uint64_t count);  // the page lives as long
  Value at(uint32_t index) const;
  size_t held() const { return begins_.capacity() * sizeof(uint32_t); }

 private:
  Physical type_ = Physical::boolean;
  std::string_view page_;
  uint64_t count_ = 0;
  size_t width_ = 0;              // of values that are all as long
  std::vector<uint32_t> begins_;  // of the others
};

// Error when the column's values are not encoded like that. `page` is what stands behind the levels.
std::unique_ptr<ValueReader> read_values(int64_t encoding, const Leaf& leaf, std::string_view page,
                                         const Dictionary* dictionary);

// As rows have it; false when it is a text that is no valid UTF-8.
bool to_json(const Leaf& leaf, const Value& value, nlohmann::ordered_json* out);

}  // namespace lumen::model::parquet
