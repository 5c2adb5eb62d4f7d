// needs: none. Edit distances, and the words that are near.
#include "base/messages/spelling.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

TEST(Spelling, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", "abc"), 0U);
  EXPECT_EQ(edit_distance("abc", "abd"), 1U) << "replaced";
  EXPECT_EQ(edit_distance("abc", "ac"), 1U) << "deleted";
  EXPECT_EQ(edit_distance("abc", "acb"), 1U) << "neighbours swapped";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Spelling, FindsSlips) {
  const std::vector<std::string> words = {"safetensors", "gguf", "block", "tile", "doc"};
  EXPECT_EQ(nearest_word("blokc", words), "block");
  EXPECT_EQ(nearest_word("safetensor", words), "safetensors");
  EXPECT_EQ(nearest_word("guff", words), "gguf");
  EXPECT_EQ(nearest_word("zebra", words), "");
  EXPECT_EQ(nearest_word("x", words), "");
  EXPECT_EQ(did_you_mean("titel", words), "did you mean 'tile'?");
  EXPECT_EQ(did_you_mean("q", words, "else"), "else");
}

TEST(Spelling, NamesUpToThree) {
  EXPECT_EQ(did_you_mean_any("row", {"column"}), "");
  EXPECT_EQ(did_you_mean_any("row", {"column", "raw"}), "did you mean 'raw'?");
  EXPECT_EQ(did_you_mean_any("row", {"rows", "raw"}), "did you mean 'raw' or 'rows'?");
  EXPECT_EQ(did_you_mean_any("row", {"rot", "rows", "raw", "rowed"}), "did you mean 'raw', 'rot' or 'rows'?");
  EXPECT_EQ(did_you_mean_any(std::string(100, 'a'), {std::string(100, 'b')}), "") << "no slip of the keyboard";
}

}  // namespace
}  // namespace lumen
