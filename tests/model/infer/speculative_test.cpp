// needs: none. Rounds with a draft write what the model alone would write; prefixes are reused and contexts shifted
// without changing what follows.
#include "model/infer/generate/speculative.h"

#include <algorithm>

#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

text::TokenId best(std::span<const float> logits) {
  return static_cast<text::TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

const SessionOptions kOptions = {.context = 48, .chunk = 16, .exact = true};

std::vector<text::TokenId> greedy(const LoadedModel& loaded, std::vector<text::TokenId> text, int64_t count) {
  Session s(loaded, kOptions);
  std::span<const float> logits = s.feed(text);
  for (int64_t i = 0; i < count; ++i) {
    text.push_back(best(logits));
    if (i + 1 < count) logits = s.feed({&text.back(), 1});
  }
  return text;
}

// Proposes the truth, with a mistake now and then.
class Oracle : public Draft {
 public:
  explicit Oracle(std::vector<text::TokenId> truth) : truth_(std::move(truth)) {}
  std::vector<text::TokenId> propose(std::span<const text::TokenId> text, int64_t most) override {
    std::vector<text::TokenId> out;
    for (size_t i = text.size(); i < truth_.size() && static_cast<int64_t>(out.size()) < most; ++i)
      out.push_back(i % 7 == 3 ? (truth_[i] + 1) % 11 : truth_[i]);
    return out;
  }

 private:
  std::vector<text::TokenId> truth_;
};

TEST(Speculative, WritesWhatTheModelAloneWrites) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  const std::vector<text::TokenId> prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<text::TokenId> want = greedy(loaded, prompt, 30);
  LookUpDraft look_up;
  ModelDraft itself(loaded, kOptions);
  Oracle oracle(want);
  for (Draft* draft : {static_cast<Draft*>(&look_up), static_cast<Draft*>(&itself), static_cast<Draft*>(&oracle)}) {
    Session s(loaded, kOptions);
    std::vector<text::TokenId> text = prompt;
    (void)s.feed(std::span(text).first(text.size() - 1));
    int64_t rounds = 0;
    while (text.size() < want.size()) {
      const auto kept = speculate(s, *draft, best, text, 5);
      ASSERT_FALSE(kept.empty());
      text.insert(text.end(), kept.begin(), kept.end());
      EXPECT_EQ(s.position(), static_cast<int64_t>(text.size()) - 1);
      ++rounds;
    }
    text.resize(want.size());
    EXPECT_EQ(text, want);
    if (draft == &itself) {  // five of its own tokens and one more in each round
      EXPECT_LE(rounds, 6);
    }
  }
}

TEST(LookUpDraft, FindsTheLatestOfTheLongestRuns) {
  LookUpDraft d(3, 1);
  const std::vector<text::TokenId> text = {1, 2, 3, 9, 2, 3, 8, 1, 2, 3};
  EXPECT_EQ(d.propose(text, 2), (std::vector<text::TokenId>{9, 2}));
  EXPECT_EQ(d.propose(std::vector<text::TokenId>{4, 5, 4, 6, 4}, 5),
            (std::vector<text::TokenId>{6, 4, 6, 4, 6}));  // and so on
  EXPECT_TRUE(d.propose(std::vector<text::TokenId>{1, 2, 3}, 3).empty());
}

TEST(Session, ReusedPrefixesAndShiftedContexts) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  const auto fresh = [&](const std::vector<text::TokenId>& text) {
    Session s(loaded, kOptions);
    const auto logits = s.feed(text);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto near = [](std::span<const float> a, const std::vector<float>& b) {
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
  };
  Session s(loaded, kOptions);
  (void)s.feed(std::vector<text::TokenId>{1, 2, 3, 4, 5, 6});
  near(s.become(std::vector<text::TokenId>{1, 2, 3, 7, 8}), fresh({1, 2, 3, 7, 8}));
  near(s.become(std::vector<text::TokenId>{1, 2, 3}), fresh({1, 2, 3}));
  EXPECT_EQ(s.tokens(), (std::vector<text::TokenId>{1, 2, 3}));
  (void)s.feed(std::vector<text::TokenId>{4, 5, 6, 7});
  s.shift(1, 3);  // 1 5 6 7
  EXPECT_EQ(s.position(), 4);
  near(s.feed(std::vector<text::TokenId>{8}), fresh({1, 5, 6, 7, 8}));
  const auto all = s.feed_all(std::vector<text::TokenId>{9, 10});
  near(all.subspan(11), fresh({1, 5, 6, 7, 8, 9, 10}));
}

}  // namespace
}  // namespace lumen::model::infer
