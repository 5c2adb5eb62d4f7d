// Needs: cpu. Which of several processes speaks.
#include "base/speaker.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace lumen {
namespace {

TEST(Speaker, TheFirstSpeaksAndOthersAreNamed) {
  EXPECT_FALSE(is_hushed());
  EXPECT_EQ(speaker_name(), "");
  speak_as(0);
  EXPECT_FALSE(is_hushed());
  EXPECT_EQ(speaker_name(), "");
  testing::internal::CaptureStderr();
  warn("told");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: told\n");
  speak_as(2);
  EXPECT_TRUE(is_hushed());
  EXPECT_EQ(speaker_name(), "rank 2: ");
  testing::internal::CaptureStderr();
  warn("kept");
  note("kept");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  speak_as(-1);
  EXPECT_FALSE(is_hushed());
}

}  // namespace
}  // namespace lumen
