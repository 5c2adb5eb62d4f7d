// Keyed checksums (MACs) of files kept on disk and of messages between processes: they cannot be forged without the
// key, whatever else an attacker can write. The primitives are libcrypto's. Error (exit 3) when one fails for want of
// memory. Proved by tests/base/sealed/seal_test.cpp.
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

// HMAC-SHA256 of the concatenation of several short parts; the boundaries between parts are authenticated, too.
Seal seal(const SealKey& key, std::initializer_list<std::string_view> parts);

// Constant-time comparison.
bool same_seal(const Seal& a, const Seal& b);

// 32 lower-case digits, without a key: collision-resistant (SHA-256, truncated).
std::string fingerprint(std::string_view text);

// The seal of contents of any size that arrive in chunks; the chunk boundaries make no difference. The contents go
// through AES-256-GMAC with a key derived from `key` and `what`, and its tag and the length are sealed as above: memory
// speed on processors with carry-less multiplication (docs/decisions/0017-files-are-sealed.md).
class ContentSeal {
 public:
  // `what`: names the contents, and contains a salt.
  ContentSeal(const SealKey& key, std::string_view what);
  ContentSeal(const ContentSeal&) = delete;
  ContentSeal& operator=(const ContentSeal&) = delete;
  ~ContentSeal();

  void add(const void* data, size_t size);
  Seal finish();  // add() must not follow

 private:
  struct State;
  const SealKey key_;
  const std::string what_;
  uint64_t size_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace lumen
