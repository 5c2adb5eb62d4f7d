// needs: none. Tables of interactions: what is read, what is refused and where, what is held out and drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "apps/recommend/recommend.h"
#include "base/error.h"

namespace lumen::recommend {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_interactions(text, "t.txt");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Interactions, AreReadInTheOrderOfTime) {
  const Interactions plain = parse_interactions("1 10\n1 11\n\n2,10\r\n1\t12\n", "t.txt");
  ASSERT_EQ(plain.users.size(), 2);
  EXPECT_EQ(plain.users[0], (std::vector<ItemId>{1, 2, 3}));
  EXPECT_EQ(plain.item_names, (std::vector<std::string>{"", "10", "11", "12"}));
  const Interactions timed = parse_interactions(
      "\xef\xbb\xbfuserId,movieId,rating,timestamp\n7,a,4.0,30\n7,b,3.5,10\n7,c,1,10\n9,a,5,1e3\n", "t.csv");
  EXPECT_EQ(timed.users[0], (std::vector<ItemId>{2, 3, 1}));
  EXPECT_EQ(timed.users[1], (std::vector<ItemId>{1}));
  EXPECT_EQ(parse_interactions("u i 2\nu j 1", "t").users[0], (std::vector<ItemId>{2, 1}));
}

TEST(Interactions, AreRefusedWithTheirLine) {
  EXPECT_NE(refusal("1 2\n3\n").find("t.txt:2: 1 columns"), std::string::npos);
  EXPECT_NE(refusal("1 2\n1 2 3\n").find("t.txt:2: 3 columns where lines before have 2"), std::string::npos);
  EXPECT_NE(refusal("1 2 3 4 5\n").find("t.txt:1: more than 4 columns"), std::string::npos);
  EXPECT_NE(refusal("1 2 noon\n").find("'noon' is no time"), std::string::npos);
  EXPECT_NE(refusal("1 2 nan\n").find("is no time"), std::string::npos);
  EXPECT_NE(refusal("1 " + std::string(65, 'x')).find("more than 64"), std::string::npos);
  EXPECT_NE(refusal(std::string(5000, ' ')).find("more than 4096"), std::string::npos);
  EXPECT_NE(refusal(std::string("1 a\0b\n", 6)).find("control character"), std::string::npos);
  EXPECT_NE(refusal("").find("no interactions"), std::string::npos);
  EXPECT_NE(refusal("user item\n").find("no interactions"), std::string::npos);
}

TEST(Interactions, AreFilteredUntilNothingChanges) {
  // Item d goes, then user 3 has one left and goes, then c is used once and goes.
  const Interactions all = parse_interactions("1 a\n1 b\n2 a\n2 b\n2 c\n3 c\n3 d\n", "t");
  const Interactions left = filtered(all, 2, 2);
  EXPECT_EQ(left.item_names, (std::vector<std::string>{"", "a", "b"}));
  EXPECT_EQ(left.users, (std::vector<std::vector<ItemId>>{{1, 2}, {1, 2}}));
  EXPECT_THROW(filtered(all, 4, 4), Error);
}

TEST(Splits, LeaveTheLastTwoOut) {
  const Split split(parse_interactions("1 a\n1 b\n1 c\n1 d\n2 a\n2 b\n", "t"));
  EXPECT_EQ(split.tested, (std::vector<int64_t>{0}));
  EXPECT_EQ(split.training(0), (std::vector<ItemId>{1, 2}));
  EXPECT_EQ(split.training(1), (std::vector<ItemId>{1, 2}));
  EXPECT_EQ(split.seen(0, true), (std::vector<ItemId>{1, 2, 3}));
  EXPECT_EQ(split.answer(0, true), 4);
  EXPECT_EQ(split.answer(0, false), 3);
}

TEST(Draws, AreEvenAndOfTheirSeedAlone) {
  Draws a(1, 2, 3), b(1, 2, 3), c(1, 3, 2);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
  std::vector<int> counts(5);
  Draws draws(7);
  for (int i = 0; i < 5000; ++i) ++counts[draws.below(5)];
  for (const int n : counts) EXPECT_NEAR(n, 1000, 130);
  const std::vector<ItemId> history = {1, 3, 4};
  std::set<ItemId> drawn;
  for (int i = 0; i < 200; ++i) drawn.insert(draw_other(draws, history, 5));
  EXPECT_EQ(drawn, (std::set<ItemId>{2, 5}));
  EXPECT_EQ(draw_other(draws, {1, 2}, 2), 0);
}

TEST(MadeUp, IsTheSameForASeedAndReadBack) {
  const Interactions made = made_up(30, 60, 10, 4);
  EXPECT_EQ(made.users, made_up(30, 60, 10, 4).users);
  EXPECT_NE(made.users, made_up(30, 60, 10, 5).users);
  EXPECT_EQ(parse_interactions(interactions_text(made), "t").count(), made.count());
  EXPECT_THROW(made_up(3, 10, 10, 1), Error);
}

TEST(Examples, ShowAPlanNothingOfWhatCounts) {
  const Split split(made_up(50, 60, 10, 4));
  const ExampleForm form{.length = 12, .targets = 0, .recent = 5, .by_candidates = false, .candidates = 0};
  const std::vector<UserWindow> all = epoch_examples(split, form, 1, 0);
  ASSERT_EQ(all.size(), 50);
  const ExampleBatch batch = training_batch(split, form, all, Draws(3));
  const auto &items = batch.integers.at("items"), &targets = batch.integers.at("targets"),
             &recent = batch.integers.at("recent");
  const auto& counts = batch.numbers.at("counts");
  for (size_t r = 0; r < all.size(); ++r) {
    const std::vector<ItemId> own = split.training(all[r].user);
    int64_t first = -1;
    for (int64_t i = 0; i < 12; ++i) {
      const size_t at = r * 12 + i;
      if (targets[at] != 0 && items[at] != 0 && i + 1 < 12) {
        EXPECT_EQ(targets[at], items[at + 1]);
      }
      if (counts[at] != 0 && first < 0) first = i;
      if (first >= 0) {
        EXPECT_EQ(counts[at], 1);
      }
    }
    ASSERT_GE(first, 0);
    // The plan's last item is the input of the first target that counts.
    EXPECT_EQ(recent[r * 5 + 4], items[r * 12 + first]);
    EXPECT_EQ(targets[r * 12 + 11], own.back());
  }
}

TEST(Examples, WindowsAndCandidates) {
  const Split split(parse_interactions("1 a\n1 b\n1 c\n1 d\n1 e\n1 f\n1 g\n", "t"));  // five are trained on
  ExampleForm form{.length = 2, .targets = 2, .recent = 0, .by_candidates = false, .candidates = 0};
  const std::vector<UserWindow> all = epoch_examples(split, form, 1, 0);
  ASSERT_EQ(all.size(), 2);
  form.by_candidates = true;
  const UserWindow one{0, 3};
  const ExampleBatch batch = training_batch(split, form, {&one, 1}, Draws(3));
  EXPECT_EQ(batch.integers.at("items"), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(batch.integers.at("answers")[0], 4);
  EXPECT_EQ(batch.integers.at("answers")[1], 5);
  EXPECT_EQ(batch.integers.at("rows")[1], 0);
  EXPECT_EQ(batch.integers.at("candidates"), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.numbers.at("counts")[1], 1);
  EXPECT_EQ(batch.numbers.at("counts")[2], 0);
}

}  // namespace
}  // namespace lumen::recommend
