#include "model/data/reader/unpack.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "run/device/require.h"

namespace lumen::model::data {
namespace {

// Rows of real data sets compress to a tenth, logs and tables to a fiftieth; deflate's limit is 1032. Small files may
// compress to any ratio.
constexpr uint64_t kMostRatio = 200;
constexpr uint64_t kNoBomb = uint64_t{16} << 20;
constexpr int64_t kAsked = int64_t{16} << 20;  // from this size on, available memory is checked

// Reserves `more` bytes, checking memory first: a growing string moves into twice the size.
void make_room(std::string& out, size_t more, const std::string& name, uint64_t limit) {
  if (out.size() + more <= out.capacity()) return;
  const int64_t wanted = std::min<uint64_t>(std::max<uint64_t>(2 * out.capacity(), uint64_t{1} << 18), limit + more);
  if (wanted > kAsked) {
    run::require_host_memory(fmt::format("unpacking '{}'", name), {{"the unpacked bytes", wanted}},
                             "split the file, or unpack it (gunzip): files that are not packed are not held in memory");
  }
  out.reserve(wanted);
}

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

std::string foreign_packing(std::string_view bytes) {
  constexpr std::pair<std::string_view, const char*> kBeginnings[] = {
      {"\x28\xb5\x2f\xfd", "zstd"}, {"BZh", "bzip2"}, {{"\xfd\x37zXZ\0", 6}, "xz"}, {"PK\x03\x04", "zip"}};
  for (const auto& [beginning, packing] : kBeginnings)
    if (bytes.starts_with(beginning)) return packing;
  return {};
}

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
    const size_t made = block.size() - stream.avail_out;
    make_room(out, made, name, limit);
    out.append(block, 0, made);
    if (out.size() > limit) throw user_error("{}: more than {} MiB once unpacked", name, limit >> 20);
    const uint64_t taken = packed.size() - left - stream.avail_in;
    if (out.size() > kNoBomb && out.size() / kMostRatio > taken) {
      throw Error(Exit::user,
                  fmt::format("{}: {} bytes unpack to more than {}: more than {} times as many, as no data do", name,
                              taken, out.size(), kMostRatio),
                  "such a file is made to fill memory; where it is meant, unpack it (gunzip) and give the result");
    }
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0 && left == 0) return out;
      if (stream.avail_in == 0) give();
      if (inflateReset(&stream) != Z_OK) throw user_error("{}: damaged gzip data", name);
    } else if (code == Z_OK || code == Z_BUF_ERROR) {
      if (stream.avail_in == 0) {
        if (left == 0) throw user_error("{}: the gzip data ends too early", name);
        give();
      } else if (made == 0) {
        throw user_error("{}: damaged gzip data", name);  // no progress in input or output
      }
    } else {
      const uint64_t at = packed.size() - left - stream.avail_in;
      throw Error(Exit::user, fmt::format("{}: damaged gzip data at byte {}", name, at),
                  "pack it or fetch it again; `gzip -t` tests a file");
    }
  }
}

}  // namespace lumen::model::data
