// Keyed checksums (MACs) of files that are kept and used later, and of messages between processes: without the key
// nobody can make a valid one. The primitives are libcrypto's. Error (exit 3) when one fails for want of memory. Proved
// by tests/base/sealed/seal_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace lumen {

using SealKey = std::array<uint8_t, 32>;
using Seal = std::array<uint8_t, 32>;

// The seal (HMAC-SHA256) of several short parts, each preceded by its length.
Seal seal(const SealKey& key, std::initializer_list<std::string_view> parts);

// Constant-time comparison.
bool same_seal(const Seal& a, const Seal& b);

// SHA-256 cut to 128 bits, as 32 lower-case hexadecimal digits. It needs no key.
std::string fingerprint(std::string_view text);

// The seal of contents of any size that come piece by piece; how they are cut makes no difference. Contents go through
// AES-256-GMAC with a key derived from `key` and `what`, whose tag and length are sealed as above: as fast as memory on
// processors that multiply without carries (docs/decisions/0017-files-are-sealed.md).
class ContentSeal {
 public:
  // `what`: what the contents are, and a salt.
  ContentSeal(const SealKey& key, std::string_view what);
  ContentSeal(const ContentSeal&) = delete;
  ContentSeal& operator=(const ContentSeal&) = delete;
  ~ContentSeal();

  void add(const void* data, size_t size);
  Seal finish();  // nothing is added behind it

 private:
  struct State;
  const SealKey key_;
  const std::string what_;
  uint64_t size_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace lumen
