// needs: none. Seals: made with a key, of every byte of every part.
#include "base/sealed/seal.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace lumen {
namespace {

TEST(Seal, DependsOnTheKeyAndOnEveryPart) {
  SealKey key{}, other{};
  other[31] = 1;
  const Seal one = seal(key, {"kernels", "name", "code"});
  EXPECT_TRUE(same_seal(one, seal(key, {"kernels", "name", "code"})));
  EXPECT_FALSE(same_seal(one, seal(other, {"kernels", "name", "code"})));
  EXPECT_FALSE(same_seal(one, seal(key, {"kernels", "name", "codf"})));
  EXPECT_FALSE(same_seal(one, seal(key, {"kernels", "namec", "ode"})));
  EXPECT_FALSE(same_seal(one, seal(key, {"kernels", "name", "code", ""})));
}

// The published values of SHA-256 for these texts.
TEST(Seal, FingerprintsAreSha256) {
  EXPECT_EQ(fingerprint(""), "e3b0c44298fc1c149afbf4c8996fb924");
  EXPECT_EQ(fingerprint("abc"), "ba7816bf8f01cfea414140de5dae2223");
}

Seal of(const SealKey& key, const std::string& what, const std::vector<std::string>& pieces) {
  ContentSeal made(key, what);
  for (const std::string& piece : pieces) made.add(piece.data(), piece.size());
  return made.finish();
}

TEST(ContentSeal, DependsOnKeyNameLengthAndEveryByte) {
  SealKey key{}, other{};
  other[0] = 1;
  const std::string text(100, 'x');
  const Seal one = of(key, "a", {text});
  EXPECT_EQ(one, of(key, "a", {text.substr(0, 1), "", text.substr(1, 50), text.substr(51)}));
  EXPECT_NE(one, of(other, "a", {text}));
  EXPECT_NE(one, of(key, "b", {text}));
  EXPECT_NE(one, of(key, "a", {text, "x"}));
  EXPECT_NE(of(key, "a", {""}), of(key, "a", {std::string(1, '\0')}));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 'y';
    EXPECT_NE(one, of(key, "a", {changed})) << i;
  }
}

int64_t allocations_left = 0;

void* limited_malloc(size_t size, const char*, int) {
  return allocations_left-- > 0 ? std::malloc(size) : nullptr;
}

void* limited_realloc(void* old, size_t size, const char*, int) {
  return allocations_left-- > 0 ? std::realloc(old, size) : nullptr;
}

void limited_free(void* memory, const char*, int) {
  std::free(memory);
}

// In a process of its own, in which libcrypto has not allocated anything: whichever of its allocations fails, there is
// an Error of exit 3 or the right result.
[[noreturn]] void seal_with_little_memory() {
  if (CRYPTO_set_mem_functions(limited_malloc, limited_realloc, limited_free) != 1) {
    std::fputs("libcrypto has allocated already", stderr);
    std::_Exit(2);
  }
  allocations_left = 1 << 20;
  const SealKey key{};
  const Seal first = seal(key, {"a"}), second = of(key, "contents", {"one", "two"});
  int refused = 0;
  for (int64_t n = 0; n < 60; ++n) {
    allocations_left = n;
    try {
      if (seal(key, {"a"}) != first || of(key, "contents", {"one", "two"}) != second ||
          fingerprint("abc") != "ba7816bf8f01cfea414140de5dae2223")
        std::_Exit(3);
    } catch (const Error& error) {
      if (error.code() != Exit::hardware) std::_Exit(4);
      ++refused;
    }
  }
  std::fputs(refused > 0 ? "refused" : "no allocation failed", stderr);
  std::_Exit(0);
}

TEST(SealDeathTest, WithoutMemoryThereIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(seal_with_little_memory(), testing::ExitedWithCode(0), "refused");
}

}  // namespace
}  // namespace lumen
