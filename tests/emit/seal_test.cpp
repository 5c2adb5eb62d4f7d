// needs: none. Seals: made with a key, of every byte of every part.
#include "emit/seal.h"

#include <gtest/gtest.h>

namespace lumen::emit {
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

// The published test vector of BLAKE3 for no input.
TEST(Seal, FingerprintsAreBlake3) {
  EXPECT_EQ(fingerprint(""), "af1349b9f5f9a1a6a0404dea36dcc949");
  EXPECT_NE(fingerprint("a"), fingerprint("b"));
}

}  // namespace
}  // namespace lumen::emit
