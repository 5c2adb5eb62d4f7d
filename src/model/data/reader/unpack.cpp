#include "model/data/reader/unpack.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace lumen::model {

std::string gunzip(std::string_view packed, const std::string& name, uint64_t limit) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw Error(Exit::hardware, "out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string out;
  std::string block(size_t{1} << 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  size_t left = packed.size();
  const auto give = [&] {
    const size_t some = std::min<size_t>(left, size_t{1} << 30);
    stream.avail_in = some;
    left -= some;
  };
  give();
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = block.size();
    const int code = inflate(&stream, Z_NO_FLUSH);
    out.append(block, 0, block.size() - stream.avail_out);
    if (out.size() > limit) throw user_error("{}: more than {} MiB once unpacked", name, limit >> 20);
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0 && left == 0) return out;
      if (stream.avail_in == 0) give();
      if (inflateReset(&stream) != Z_OK) throw user_error("{}: damaged gzip data", name);
    } else if (code == Z_OK || code == Z_BUF_ERROR) {
      if (stream.avail_in == 0) {
        if (left == 0) throw user_error("{}: the gzip data ends too early", name);
        give();
      }
    } else {
      throw user_error("{}: damaged gzip data: {}", name, stream.msg ? stream.msg : "unknown");
    }
  }
}

}  // namespace lumen::model
