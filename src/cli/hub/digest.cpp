#include "cli/hub/digest.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::cli {
namespace {

void require_done(bool done) {
  if (!done) throw Error(Exit::hardware, "libcrypto cannot compute a hash", "check the configuration of OpenSSL");
}

}  // namespace

DigestKind digest_kind(std::string_view etag) {
  const bool is_hex =
      std::ranges::all_of(etag, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!is_hex) return DigestKind::none;
  return etag.size() == 64 ? DigestKind::sha256 : etag.size() == 40 ? DigestKind::git_sha1 : DigestKind::none;
}

Digest::Digest(DigestKind kind, uint64_t size) {
  if (kind == DigestKind::none) return;
  context_.reset(EVP_MD_CTX_new());
  require_done(context_ != nullptr);
  require_done(EVP_DigestInit_ex(context_.get(), kind == DigestKind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1);
  if (kind != DigestKind::git_sha1) return;
  const std::string head = fmt::format("blob {}", size);
  add(head.c_str(), head.size() + 1);
}

void Digest::add(const void* data, size_t size) {
  if (context_) require_done(EVP_DigestUpdate(context_.get(), data, size) == 1);
}

std::string Digest::hex() {
  if (!context_) return {};
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  require_done(EVP_DigestFinal_ex(context_.get(), bytes, &size) == 1);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

}  // namespace lumen::cli
