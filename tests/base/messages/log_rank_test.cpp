// Needs: cpu. Which of several processes speaks.
#include "base/messages/log_rank.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace lumen {
namespace {

TEST(Speaker, TheFirstSpeaksAndOthersAreNamed) {
  EXPECT_FALSE(is_secondary_rank());
  EXPECT_EQ(rank_prefix(), "");
  set_log_rank(0);
  EXPECT_FALSE(is_secondary_rank());
  EXPECT_EQ(rank_prefix(), "");
  testing::internal::CaptureStderr();
  warn("told");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: told\n");
  set_log_rank(2);
  EXPECT_TRUE(is_secondary_rank());
  EXPECT_EQ(rank_prefix(), "rank 2: ");
  testing::internal::CaptureStderr();
  warn("kept");
  note("kept");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  set_log_rank(-1);
  EXPECT_FALSE(is_secondary_rank());
}

}  // namespace
}  // namespace lumen
