// Decompression of pages, by one of several codecs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::model::data::parquet {

// Memory reused from page to page. It is not cleared first, so a damaged file that announces more than it has touches
// no memory.
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

// Error for a codec that is not supported.
void check_codec(int codec);

// Decompresses to `size` bytes, in `buffer`, or `packed` itself if stored. Error when damaged or of another size.
std::string_view unpack_page(int codec, std::string_view packed, size_t size, PageBuffer& buffer);

}  // namespace lumen::model::data::parquet
