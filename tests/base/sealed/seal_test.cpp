// needs: none. Seals: made with a key, of every byte of every part.
#include "base/sealed/seal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace lumen
