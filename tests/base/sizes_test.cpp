// base/sizes: a unit that fits.
#include <gtest/gtest.h>

#include <cmath>

#include "base/printable.h"

namespace lumen {
namespace {

TEST(Sizes, HaveTheUnitThatFits) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1), "1 byte");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(1024), "1.00 KiB");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
  EXPECT_EQ(size_text(300e3), "293.0 KiB");
  EXPECT_EQ(size_text(1048575), "1.00 MiB");
  EXPECT_EQ(size_text(double(5LL << 30) / 4), "1.25 GiB");
  EXPECT_EQ(size_text(std::ldexp(1, 60)), "1.00 EiB");
  EXPECT_EQ(size_text(std::ldexp(1, 75)), "32768.0 EiB");
}

// Nothing that is there reads as nothing, and what is more never reads as less.
TEST(Sizes, NeverReadAsZero) {
  for (double bytes = 1; bytes < 1e19; bytes *= 1.01) EXPECT_GE(std::stod(size_text(bytes)), 1) << bytes;
}

}  // namespace
}  // namespace lumen
