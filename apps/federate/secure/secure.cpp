#include "apps/federate/secure/secure.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace lumen::federate {
namespace {

constexpr uint64_t kMostExamples = uint64_t{1} << 40;

void require_done(bool is_done, const char* what) {
  if (!is_done) throw Error(Exit::hardware, fmt::format("OpenSSL does not {}", what));
}

template <auto Free>
struct FreedBy {
  template <class T>
  void operator()(T* what) const {
    Free(what);
  }
};
using AnyKey = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using KeyUse = std::unique_ptr<EVP_PKEY_CTX, FreedBy<EVP_PKEY_CTX_free>>;
using Derivation = std::unique_ptr<EVP_KDF, FreedBy<EVP_KDF_free>>;
using DerivationUse = std::unique_ptr<EVP_KDF_CTX, FreedBy<EVP_KDF_CTX_free>>;
using CipherUse = std::unique_ptr<EVP_CIPHER_CTX, FreedBy<EVP_CIPHER_CTX_free>>;

}  // namespace

struct AgreementKey::Held {
  explicit Held(EVP_PKEY* made) : key(made) {}
  ~Held() { EVP_PKEY_free(key); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  EVP_PKEY* key;
};

KeyBytes drawn_bytes() {
  KeyBytes out;
  require_done(RAND_bytes(out.data(), int(out.size())) == 1, "draw");
  return out;
}

AgreementKey::AgreementKey() : held_(std::make_unique<Held>(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"))) {
  size_t size = open_.size();
  require_done(held_->key && EVP_PKEY_get_raw_public_key(held_->key, open_.data(), &size) == 1 && size == open_.size(),
               "make a key");
}
AgreementKey::~AgreementKey() = default;
AgreementKey::AgreementKey(AgreementKey&& other) noexcept = default;

KeyBytes AgreementKey::agreed(const KeyBytes& other) const {
  const AnyKey theirs(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, other.data(), other.size()));
  const KeyUse use(EVP_PKEY_CTX_new(held_->key, nullptr));
  KeyBytes out;
  size_t size = out.size();
  // Points of small order, whose shared secret is always zero, fail here.
  if (!theirs || !use || EVP_PKEY_derive_init(use.get()) != 1 ||
      EVP_PKEY_derive_set_peer(use.get(), theirs.get()) != 1 || EVP_PKEY_derive(use.get(), out.data(), &size) != 1 ||
      size != out.size())
    throw user_error("another client's key is invalid");
  return out;
}

KeyBytes derived_key(const KeyBytes& secret, const std::string& purpose) {
  const Derivation hkdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  require_done(hkdf != nullptr, "know HKDF");
  const DerivationUse use(EVP_KDF_CTX_new(hkdf.get()));
  std::string digest = "SHA256", info = purpose;
  KeyBytes from = secret, out;
  const OSSL_PARAM how[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
                            OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, from.data(), from.size()),
                            OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
                            OSSL_PARAM_construct_end()};
  require_done(use && EVP_KDF_derive(use.get(), out.data(), out.size(), how) == 1, "derive a key");
  return out;
}

void add_mask(std::span<uint32_t> words, const KeyBytes& key, bool is_taken_away) {
  const CipherUse use(EVP_CIPHER_CTX_new());
  const std::array<uint8_t, 16> counter{};
  require_done(use && EVP_EncryptInit_ex(use.get(), EVP_chacha20(), nullptr, key.data(), counter.data()) == 1,
               "begin a mask");
  std::array<uint8_t, 4096> zeros{}, mask;
  for (size_t at = 0; at < words.size(); at += zeros.size() / 4) {
    const size_t count = std::min(words.size() - at, zeros.size() / 4);
    int made = 0;
    require_done(EVP_EncryptUpdate(use.get(), mask.data(), &made, zeros.data(), int(4 * count)) == 1 &&
                     size_t(made) == 4 * count,
                 "make a mask");
    for (size_t i = 0; i < count; ++i) {
      uint32_t word = 0;
      for (size_t b = 0; b < 4; ++b) word |= uint32_t{mask[4 * i + b]} << 8 * b;
      words[at + i] += is_taken_away ? 0 - word : word;
    }
  }
}

std::vector<uint32_t> fixed_words(std::span<const float> numbers, double share) {
  std::vector<uint32_t> out;
  out.reserve(numbers.size());
  for (const float x : numbers) {
    if (!(std::fabs(x) < kMostFixed))
      throw Error(Exit::numeric, fmt::format("{} cannot be summed: it is not below {}", x, kMostFixed));
    out.push_back(uint32_t(int64_t(std::rint(double{x} * share * kFixedUnit))));
  }
  return out;
}

double fixed_number(uint32_t word) {
  return double(int32_t(word)) / kFixedUnit;
}

void require_group(const SumGroup& group) {
  if (group.members.size() < kLeastGroup)
    throw user_error("a group of {}: a sum of fewer than {} clients reveals too much", group.members.size(),
                     kLeastGroup);
  for (size_t i = 0; i < group.members.size(); ++i) {
    const GroupMember& m = group.members[i];
    if (i > 0 && m.name <= group.members[i - 1].name) throw user_error("a group with names in disorder");
    if (m.examples < 1 || m.examples > kMostExamples) throw user_error("a group with {} examples", m.examples);
    for (size_t j = 0; j < i; ++j)
      if (group.members[j].key == m.key) throw user_error("a group in which two have one key");
  }
}

}  // namespace lumen::federate
