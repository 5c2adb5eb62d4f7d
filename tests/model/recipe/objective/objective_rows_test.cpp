// needs: none. What objectives need of rows: answers' log probabilities, answers of other prompts, rows known again.
#include "model/recipe/objective/objective_rows.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::model::recipe {
namespace {

// Two rows of 5: a prompt of 2 with an answer of 2, a prompt of 1 with an answer of 3; filling behind.
data::Batch two_rows() {
  data::Batch b{2,  5, {1, 2, 3, 4, 0, 5, 6, 7, 8, 0}, {2, 3, 4, 0, 0, 6, 7, 8, 0, 0}, {0, 1, 1, 0, 0, 1, 1, 1, 0, 0},
                {}, {}};
  return b;
}

TEST(ObjectiveRows, AnswersAreWhatHasAWeight) {
  const std::vector<float> losses = {9, 1, 2, 9, 9, 1, 1, 4, 9, 9};
  EXPECT_EQ(answer_logp(two_rows(), losses), (std::vector<float>{-3, -6}));
  data::Batch all = two_rows();
  all.weights.clear();
  EXPECT_EQ(answer_logp(all, losses), (std::vector<float>{-30, -24}));
}

TEST(ObjectiveRows, MismatchedRowsHaveTheNextRowsAnswers) {
  const data::Batch m = mismatched(two_rows());
  // Row 0: its prompt 1 2, then the answer 6 7 8 of row 1.
  EXPECT_EQ(std::vector<text::TokenId>(m.tokens.begin(), m.tokens.begin() + 5),
            (std::vector<text::TokenId>{1, 2, 6, 7, 8}));
  EXPECT_EQ(std::vector<float>(m.weights.begin(), m.weights.begin() + 5), (std::vector<float>{0, 1, 1, 1, 0}));
  EXPECT_EQ(m.targets[1], 6);
  EXPECT_EQ(m.targets[3], 8);
  // Row 1: its prompt 5, then the answer 3 4 of row 0.
  EXPECT_EQ(std::vector<text::TokenId>(m.tokens.begin() + 5, m.tokens.begin() + 8),
            (std::vector<text::TokenId>{5, 3, 4}));
  EXPECT_EQ(std::vector<float>(m.weights.begin() + 5, m.weights.end()), (std::vector<float>{1, 1, 0, 0, 0}));
}

TEST(ObjectiveRows, RowsAreKnownByWhatTheySay) {
  const data::Batch b = two_rows();
  RowLog log;
  EXPECT_FALSE(log.has(b));
  EXPECT_THROW((void)log.of(b), Error);
  log.add(b, {-1.25F, -3.5F});
  data::Batch turned = b, filled = b;
  for (auto* row : {&turned.tokens, &turned.targets}) std::rotate(row->begin(), row->begin() + 5, row->end());
  std::rotate(turned.weights.begin(), turned.weights.begin() + 5, turned.weights.end());
  filled.tokens[4] = 99;  // behind the answer
  EXPECT_EQ(log.of(turned), (std::vector<float>{-3.5F, -1.25F}));
  EXPECT_EQ(log.of(filled), (std::vector<float>{-1.25F, -3.5F}));
  data::Batch other = b;
  other.targets[1] = 9;
  EXPECT_FALSE(log.has(other));
  const RowLog again = RowLog::read(log.text(), "test");
  EXPECT_EQ(again.of(b), log.of(b));
  EXPECT_EQ(again.text(), log.text());
  for (const char* wrong : {"x", "00000000000000000000000000000000 zz", "00000000000000000000000000000000 7fc00000"})
    EXPECT_THROW((void)RowLog::read(wrong, "test"), Error) << wrong;
}

}  // namespace
}  // namespace lumen::model::recipe
