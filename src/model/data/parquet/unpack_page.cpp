#include "model/data/parquet/unpack_page.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zstd.h>

#include <array>
#include <climits>
#include <cstring>

#include "base/error.h"
#include "model/data/reader/unpack.h"

namespace lumen::model::data::parquet {
namespace {

// Pages of one repeated value compress to a thousandth; larger data is split into several pages.
constexpr size_t kMostRatio = 1000, kNoBomb = size_t{16} << 20;
constexpr int kStored = 0, kSnappy = 1, kGzip = 2, kBrotli = 4, kZstandard = 6, kLz4 = 7;
constexpr std::array<const char*, 8> kNames = {"stored", "snappy", "gzip", "lzo", "brotli", "lz4 with Hadoop's frames",
                                               "zstd",   "lz4_raw"};

bool unpack(int codec, std::string_view packed, size_t size, char* out) {
  if (codec == kSnappy) {
    size_t made = 0;
    if (snappy_uncompressed_length(packed.data(), packed.size(), &made) != SNAPPY_OK || made != size) return false;
    return snappy_uncompress(packed.data(), packed.size(), out, &made) == SNAPPY_OK && made == size;
  }
  if (codec == kZstandard) return ZSTD_decompress(out, size, packed.data(), packed.size()) == size;
  if (codec == kBrotli) {
    size_t made = size;
    return BrotliDecoderDecompress(packed.size(), reinterpret_cast<const uint8_t*>(packed.data()), &made,
                                   reinterpret_cast<uint8_t*>(out)) == BROTLI_DECODER_RESULT_SUCCESS &&
           made == size;
  }
  if (codec == kLz4) {
    if (packed.size() > INT_MAX || size > INT_MAX) return false;
    const int made = LZ4_decompress_safe(packed.data(), out, packed.size(), size);
    return made >= 0 && static_cast<size_t>(made) == size;
  }
  const std::string text = gunzip(packed, "a page", size);
  if (text.size() != size) return false;
  std::memcpy(out, text.data(), size);
  return true;
}

}  // namespace

void check_codec(int codec) {
  if (codec == kStored || codec == kSnappy || codec == kGzip || codec == kBrotli || codec == kZstandard ||
      codec == kLz4)
    return;
  const bool known = codec >= 0 && static_cast<size_t>(codec) < kNames.size();
  throw Error(Exit::user,
              fmt::format("packed by {}, which is not supported",
                          known ? kNames[codec] : fmt::format("codec {}", codec).c_str()),
              "write the file with snappy, gzip, brotli, zstd, lz4_raw or without a codec");
}

std::string_view unpack_page(int codec, std::string_view packed, size_t size, PageBuffer& buffer) {
  if (codec == kStored) {
    if (packed.size() != size) throw user_error("a page differs from its recorded size");
    return packed;
  }
  if (size == 0) return {};
  if (size > kNoBomb && size / kMostRatio > packed.size())
    throw user_error("a page of {} bytes claims to unpack to {}: more than {} times as many, which no data reach",
                     packed.size(), size, kMostRatio);
  char* out = buffer.get(size);
  if (!unpack(codec, packed, size, out)) throw user_error("a page packed by {} is damaged", kNames[codec]);
  return {out, size};
}

}  // namespace lumen::model::data::parquet
