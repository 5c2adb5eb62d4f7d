// Hashes by which the hub names contents: SHA-256 of large files, and the SHA-1 of git blobs of small ones. Proved by
// tests/cli/hub/digest_test.cpp.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::cli {

enum class DigestKind { none, sha256, git_sha1 };

// The kind by the number of hexadecimal digits: 64 or 40; none for other texts.
DigestKind digest_kind(std::string_view etag);

// The digest of contents that arrive in pieces. `size`: bytes of the whole contents, which is part of a git blob.
class Digest {
 public:
  Digest(DigestKind kind, uint64_t size);
  void add(const void* data, size_t size);
  std::string hex();  // add() must not follow; empty for DigestKind::none

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace lumen::cli
