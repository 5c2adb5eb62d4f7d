// Content hashes for names and integrity checks. XXH3, 128 bits: fast, but not collision-resistant against an attacker
// (base/sealed/seal.h is).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lumen {

struct Hash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
  std::string hex() const;  // 32 lower-case digits
};

Hash hash_bytes(const void* data, size_t size);
inline Hash hash_text(std::string_view text) {
  return hash_bytes(text.data(), text.size());
}

}  // namespace lumen
