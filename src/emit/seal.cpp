#include "emit/seal.h"

#include <fmt/format.h>
#include <llvm-c/blake3.h>

namespace lumen::emit {
namespace {

static_assert(sizeof(SealKey) == LLVM_BLAKE3_KEY_LEN);

}  // namespace

Seal seal(const SealKey& key, std::initializer_list<std::string_view> parts) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init_keyed(&hasher, key.data());
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    llvm_blake3_hasher_update(&hasher, &size, sizeof size);
    llvm_blake3_hasher_update(&hasher, part.data(), part.size());
  }
  Seal out;
  llvm_blake3_hasher_finalize(&hasher, out.data(), out.size());
  return out;
}

bool same_seal(const Seal& a, const Seal& b) {
  uint8_t differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs = differs | (a[i] ^ b[i]);
  return differs == 0;
}

std::string fingerprint(std::string_view text) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  llvm_blake3_hasher_update(&hasher, text.data(), text.size());
  std::array<uint8_t, 16> digest;
  llvm_blake3_hasher_finalize(&hasher, digest.data(), digest.size());
  std::string out;
  for (const uint8_t byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace lumen::emit
