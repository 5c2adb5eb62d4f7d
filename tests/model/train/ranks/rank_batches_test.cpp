// needs: none. The shares of all ranks are the batch.
#include "model/train/ranks/rank_batches.h"

#include <gtest/gtest.h>

namespace lumen::model::train {
namespace {

TEST(RankBatches, SharesOneBehindTheOtherAreTheBatch) {
  data::Batch whole{6, 2, {}, {}, {}, {}, {}};
  for (int i = 0; i < 12; ++i) {
    whole.tokens.push_back(i);
    whole.targets.push_back(i + 1);
    whole.weights.push_back(0.5F * i);
    whole.starts.push_back(i % 2);
  }
  for (int i = 0; i < 6; ++i) whole.labels.push_back(i);
  for (const int ranks : {1, 2, 3, 6}) {
    data::Batch joined{0, 2, {}, {}, {}, {}, {}};
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    for (int r = 0; r < ranks; ++r) {
      const data::Batch share = share_of(whole, r, ranks);
      EXPECT_EQ(share.rows, 6 / ranks);
      joined.rows += share.rows;
      append(joined.tokens, share.tokens);
      append(joined.targets, share.targets);
      append(joined.weights, share.weights);
      append(joined.starts, share.starts);
      append(joined.labels, share.labels);
    }
    EXPECT_EQ(joined.rows, whole.rows);
    EXPECT_EQ(joined.tokens, whole.tokens);
    EXPECT_EQ(joined.targets, whole.targets);
    EXPECT_EQ(joined.weights, whole.weights);
    EXPECT_EQ(joined.starts, whole.starts);
    EXPECT_EQ(joined.labels, whole.labels);
  }
}

TEST(RankBatches, WhatABatchHasNotAShareHasNot) {
  const data::Batch share = share_of({2, 1, {1, 2}, {3, 4}, {}, {}, {}}, 1, 2);
  EXPECT_EQ(share.tokens, (std::vector<text::TokenId>{2}));
  EXPECT_TRUE(share.weights.empty() && share.starts.empty() && share.labels.empty());
}

}  // namespace
}  // namespace lumen::model::train
