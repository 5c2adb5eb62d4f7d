#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace lumen {

std::string Hash::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::optional<Hash> read_hash(std::string_view hex) {
  Hash hash;
  const char* begin = hex.data();
  const bool whole = hex.size() == 32 && std::from_chars(begin, begin + 16, hash.high, 16).ptr == begin + 16 &&
                     std::from_chars(begin + 16, begin + 32, hash.low, 16).ptr == begin + 32;
  if (!whole || hash.hex() != hex) return std::nullopt;
  return hash;
}

Hash hash_bytes(const void* data, size_t size) {
  const XXH128_hash_t h = XXH3_128bits(data, size);
  return {h.low64, h.high64};
}

}  // namespace lumen
