#include "base/sealed/seal.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "base/error.h"

namespace lumen {
namespace {

constexpr size_t kTag = 16;                 // bytes
constexpr size_t kPiece = size_t{1} << 24;  // of contents, per call

std::string_view bytes_of(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Every libcrypto has these algorithms: a call fails when it gets no memory, or when the library is set up without
// them.
void require_done(bool done, const char* what) {
  if (done) return;
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  throw Error(Exit::hardware, fmt::format("libcrypto cannot {}: {}", what, reason ? reason : "no memory"),
              "free memory, or check the configuration of OpenSSL");
}

EVP_MAC* gmac() {
  static EVP_MAC* const mac = [] {
    EVP_MAC* const fetched = EVP_MAC_fetch(nullptr, "GMAC", nullptr);
    require_done(fetched != nullptr, "find GMAC");
    return fetched;
  }();
  return mac;
}

}  // namespace

Seal seal(const SealKey& key, std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    all += bytes_of(size);
    all += part;
  }
  Seal out;
  unsigned int size = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(all.data()), all.size(),
           out.data(), &size);
  require_done(made != nullptr && size == out.size(), "compute an HMAC of SHA-256");
  return out;
}

bool same_seal(const Seal& a, const Seal& b) {
  uint8_t differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs = differs | (a[i] ^ b[i]);
  return differs == 0;
}

std::string fingerprint(std::string_view text) {
  std::array<uint8_t, 32> digest;
  unsigned int size = 0;
  require_done(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1,
               "compute a SHA-256");
  std::string out;
  for (size_t i = 0; i < digest.size() / 2; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

struct ContentSeal::State {
  EVP_MAC_CTX* context = EVP_MAC_CTX_new(gmac());
  State() { require_done(context != nullptr, "begin a GMAC"); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MAC_CTX_free(context); }
};

ContentSeal::ContentSeal(const SealKey& key, std::string_view what)
    : key_(key), what_(what), state_(std::make_unique<State>()) {
  const Seal own = seal(key_, {"contents", what_});
  // The key is used for these contents only, and the tag is never shown: a constant nonce is safe.
  unsigned char nonce[12] = {};
  char cipher[] = "AES-256-GCM";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
                                   OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce, sizeof nonce),
                                   OSSL_PARAM_construct_end()};
  require_done(EVP_MAC_init(state_->context, own.data(), own.size(), parameters) == 1, "begin an AES-256-GMAC");
}

ContentSeal::~ContentSeal() = default;

void ContentSeal::add(const void* data, size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  size_ += size;
  while (size > 0) {
    const size_t some = std::min(size, kPiece);
    require_done(EVP_MAC_update(state_->context, from, some) == 1, "go on with a GMAC");
    from += some;
    size -= some;
  }
}

Seal ContentSeal::finish() {
  std::array<uint8_t, kTag> tag;
  size_t size = 0;
  require_done(EVP_MAC_final(state_->context, tag.data(), &size, tag.size()) == 1 && size == tag.size(), "end a GMAC");
  return seal(key_, {"seal", what_, bytes_of(size_), bytes_of(tag)});
}

}  // namespace lumen
