#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace lumen {

std::string Hash::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

Hash hash_bytes(const void* data, size_t size) {
  const XXH128_hash_t h = XXH3_128bits(data, size);
  return {h.low64, h.high64};
}

}  // namespace lumen
