// needs: none. Scores come back as they were, for their key alone, and what is damaged is told and not taken.
#include "model/compress/score/score_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

TEST(ScoreFile, ComesBackOrIsMadeAgain) {
  const TestFolder folder;
  const FormatLibrary& formats = test_library()->formats();
  WeightScore score;
  score.name = "a";
  score.weights = 12;
  score.candidates.push_back({formats.get("q8_0"), 34, 0.5, 0.25});
  SealedFolder kept(folder / "w");
  EXPECT_FALSE(read_scores(kept, "loss", "key", formats));
  write_scores(kept, "loss", "key", {score});
  const auto back = read_scores(kept, "loss", "key", formats);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->at(0).name, "a");
  EXPECT_EQ(back->at(0).candidates[0].score, 0.5);
  EXPECT_FALSE(read_scores(kept, "loss", "another", formats));
  EXPECT_FALSE(read_scores(kept, "criteria", "key", formats));
  const std::filesystem::path file = kept.path() / "scores/loss";
  const std::string whole = read_file(file);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << changed;
    }
    testing::internal::CaptureStderr();
    EXPECT_FALSE(read_scores(kept, "loss", "key", formats)) << at;
    EXPECT_NE(testing::internal::GetCapturedStderr().find(file.string()), std::string::npos) << at;
  }
  kept.write("scores", "loss", "{\"key\": \"key\", \"weights\": [{\"name\": 3}]}");
  EXPECT_FALSE(read_scores(kept, "loss", "key", formats)) << "of another version";
}

}  // namespace
}  // namespace lumen::model::compress
