// needs: none. Batches of windows: pure functions of their number, and refusals that name what is wrong.
#include "model/data/examples/batches.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::model::data {
namespace {

class BatchesTest : public testing::Test {
 protected:
  std::shared_ptr<const Dataset> data(size_t copies) const {
    std::string text;
    for (size_t i = 0; i < copies; ++i) text += "The quick brown fox jumps over the lazy dog. ";
    return std::make_shared<Dataset>(Dataset::from_text(text, text::Tokenizer::characters(text), {.validation = 0.2}));
  }
};

TEST_F(BatchesTest, TargetsFollowTokens) {
  const auto batches = window_batches(data(40), 3, 2, 16, 2);
  EXPECT_FALSE(batches->has_weights());
  EXPECT_FALSE(batches->has_starts());
  const Batch a = batches->training(5, 1);
  ASSERT_EQ(a.rows, 2);
  ASSERT_EQ(a.tokens.size(), 32U);
  ASSERT_EQ(a.targets.size(), 32U);
  for (size_t row = 0; row < 2; ++row)
    for (size_t t = 0; t + 1 < 16; ++t) EXPECT_EQ(a.targets[row * 16 + t], a.tokens[row * 16 + t + 1]);
  const Batch again = window_batches(data(40), 3, 2, 16, 2)->training(5, 1);
  EXPECT_EQ(a.tokens, again.tokens);
  EXPECT_NE(a.tokens, batches->training(5, 0).tokens);
  // Parts of steps are numbered through.
  EXPECT_EQ(a.tokens, window_batches(data(40), 3, 2, 16, 1)->training(11, 0).tokens);
}

TEST_F(BatchesTest, ValidationIsReadFromEndToEnd) {
  const auto text = data(40);
  const auto batches = window_batches(text, 3, 2, 16, 1);
  ASSERT_GT(batches->validation_rows(), 2);
  const Batch b = batches->validation(1, 2);
  EXPECT_TRUE(std::equal(b.tokens.begin(), b.tokens.end(), text->validation().begin() + 16));
  EXPECT_TRUE(std::equal(b.targets.begin(), b.targets.end(), text->validation().begin() + 17));
}

TEST_F(BatchesTest, TooLittleIsRefused) {
  EXPECT_NO_THROW(window_batches(data(40), 3, 2, 16, 1)->require(256));
  EXPECT_THROW(window_batches(data(40), 3, 2, 16, 1)->require(4), Error);      // other tokens
  EXPECT_THROW(window_batches(data(2), 3, 2, 1000, 1)->require(256), Error);   // nothing to train on
  EXPECT_THROW(window_batches(data(40), 3, 2, 1000, 1)->require(256), Error);  // nothing to validate on
}

}  // namespace
}  // namespace lumen::model::data
