// Pages are packed by one of several codecs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::model::parquet {

// Memory that is used again from page to page. It is not cleared first, so that what a damaged file announces and does
// not bring takes no memory.
class PageBuffer {
 public:
  char* get(size_t size) {
    if (size > capacity_) {
      bytes_.reset(new char[size]);
      capacity_ = size;
    }
    return bytes_.get();
  }
  size_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t capacity_ = 0;
};

// Error when there is no such codec here.
void check_codec(int codec);

// `size` bytes, in `buffer` or where they lie. Error when they are damaged or more or fewer.
std::string_view unpack_page(int codec, std::string_view packed, size_t size, PageBuffer& buffer);

}  // namespace lumen::model::parquet
