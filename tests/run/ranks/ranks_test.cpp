// Needs: cpu. What ranks do together, by shared memory and by TCP: the same results, sums in the order of ranks, every
// size of message, and an end for all where one ends.
#include "run/ranks/ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "run/device/device.h"
#include "tests/run/ranks/among.h"

namespace lumen::run {
namespace {

constexpr int kRanks = 3;

class RanksTest : public testing::TestWithParam<bool> {
 protected:
  static std::vector<std::string> among_ranks(const std::function<void(Communicator&)>& rank) {
    static int port = 31500;
    return GetParam() ? among_tcp(kRanks, ++port, rank) : among_shared(kRanks, rank);
  }
};
INSTANTIATE_TEST_SUITE_P(, RanksTest, testing::Bool(), [](const auto& p) { return p.param ? "tcp" : "shared"; });

// A number that says who sends what to whom.
uint8_t mark(int from, int to, int64_t i) {
  return from * 101 + to * 31 + i * 7 + i / 251;
}

TEST_P(RanksTest, ExchangesEverySizeOfMessage) {
  EXPECT_EQ(among_ranks([](Communicator& own) {
              for (const int64_t bytes : {0, 1, 17, 65536, 5'000'001}) {
                std::vector<std::vector<uint8_t>> out(kRanks), in(kRanks);
                SentPieces to(kRanks);
                TakenPieces from(kRanks);
                for (int r = 0; r < kRanks; ++r) {
                  out[r].resize(bytes + 3 * own.rank() + r);
                  in[r].resize(bytes + 3 * r + own.rank());
                  for (size_t i = 0; i < out[r].size(); ++i) out[r][i] = mark(own.rank(), r, i);
                  const int64_t half = std::ssize(out[r]) / 2, theirs = std::ssize(in[r]) / 2;
                  to[r] = {{out[r].data(), half}, {nullptr, 0}, {out[r].data() + half, std::ssize(out[r]) - half}};
                  from[r] = {{in[r].data(), theirs}, {nullptr, 0}, {in[r].data() + theirs, std::ssize(in[r]) - theirs}};
                }
                own.exchange(to, from);
                for (int r = 0; r < kRanks; ++r)
                  for (size_t i = 0; i < in[r].size(); ++i) ASSERT_EQ(in[r][i], mark(r, own.rank(), i)) << bytes;
              }
            }),
            kNoErrors3);
}

TEST_P(RanksTest, SumsInTheOrderOfRanks) {
  std::vector<std::vector<float>> of(kRanks, std::vector<float>(1003));
  std::mt19937 random(1);
  for (auto& numbers : of)
    for (float& x : numbers) x = std::uniform_real_distribution<float>(-1, 1)(random) * (random() % 2 ? 1e4F : 1e-4F);
  std::vector<float> expected(1003);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = of[0][i] + of[1][i] + of[2][i];
  EXPECT_EQ(among_ranks([&](Communicator& own) {
              std::vector<float> mine = of[own.rank()];
              own.all_reduce(mine);
              EXPECT_EQ(mine, expected);
              std::vector<double> numbers = {own.rank() + 0.5, -1.0};
              own.all_reduce(numbers);
              EXPECT_EQ(numbers, (std::vector<double>{4.5, -3.0}));
            }),
            kNoErrors3);
}

TEST_P(RanksTest, GathersTextsAndBroadcasts) {
  EXPECT_EQ(among_ranks([](Communicator& own) {
              const auto all = own.all_gather(std::string(own.rank() * 70000, 'a' + own.rank()));
              ASSERT_EQ(all.size(), 3U);
              for (int r = 0; r < kRanks; ++r) EXPECT_EQ(all[r], std::string(r * 70000, 'a' + r));
              int number = own.rank() == 2 ? 77 : 0;
              own.broadcast(std::as_writable_bytes(std::span(&number, 1)), 2);
              EXPECT_EQ(number, 77);
              std::vector<int32_t> blocks(6, -1);  // 1, 2 and 3 of them
              const int64_t first[] = {0, 1, 3}, sizes[] = {4, 8, 12};
              for (int i = 0; i <= own.rank(); ++i) blocks[first[own.rank()] + i] = own.rank();
              own.all_gather(blocks.data(), sizes);
              EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 1, 2, 2, 2}));
              own.barrier();
            }),
            kNoErrors3);
}

// Groups say what they want, each as often as it likes, and all of them something together in between.
TEST_P(RanksTest, GroupsTalkAmongThemselves) {
  EXPECT_EQ(among_ranks([](Communicator& own) {
              const std::shared_ptr<Communicator> all(&own, [](Communicator*) {});
              const bool pairs = own.rank() != 1;
              const auto group = Communicator::group(all, pairs ? std::vector<int>{0, 2} : std::vector<int>{1});
              EXPECT_EQ(group->size(), pairs ? 2 : 1);
              EXPECT_EQ(group->rank(), own.rank() == 2 ? 1 : 0);
              for (int turn = 0; turn < 3; ++turn) {
                const std::string mine(1, 'a' + own.rank());
                const std::vector<std::string> ours = group->all_gather(mine);
                EXPECT_EQ(ours, pairs ? (std::vector<std::string>{"a", "c"}) : std::vector<std::string>{"b"});
                if (!pairs) (void)group->all_gather("more");
                std::vector<float> numbers = {own.rank() + 0.25F, 1.0F};
                group->all_reduce(numbers);
                EXPECT_EQ(numbers, pairs ? (std::vector<float>{2.5F, 2.0F}) : (std::vector<float>{1.25F, 1.0F}));
                EXPECT_EQ(own.all_gather(mine), (std::vector<std::string>{"a", "b", "c"}));
              }
            }),
            kNoErrors3);
}

TEST_P(RanksTest, AllEndWhereOneEnds) {
  const auto errors = among_ranks([](Communicator& own) {
    own.barrier();
    if (own.rank() == 1) throw user_error("the disk is full");
    for (int i = 0; i < 1000; ++i) own.barrier();
  });
  EXPECT_EQ(errors[1], "the disk is full");
  for (const int r : {0, 2}) {
    EXPECT_NE(errors[r].find("is gone"), std::string::npos) << errors[r];
    EXPECT_NE(errors[r].find("the disk is full"), std::string::npos) << errors[r];
  }
}

TEST_P(RanksTest, WhoLeavesEarlyIsMissed) {
  const auto errors = among_ranks([](Communicator& own) {
    own.barrier();
    if (own.rank() != 2) own.barrier();
  });
  EXPECT_EQ(errors[2], "");
  for (const int r : {0, 1}) EXPECT_NE(errors[r].find("is gone"), std::string::npos) << errors[r];
}

TEST_P(RanksTest, SumsKeepTheirBitsWhateverComesFirst) {
  for (int run = 0; run < 3; ++run)
    EXPECT_EQ(among_ranks([&](Communicator& own) {
                std::vector<float> numbers(70000, 0.1F + own.rank());
                if (own.rank() == run) std::this_thread::sleep_for(std::chrono::milliseconds(20));
                own.all_reduce(numbers);
                const float sum = (0.1F + 1.1F) + 2.1F;
                for (const float x : numbers) ASSERT_EQ(x, sum);
              }),
              kNoErrors3);
}

}  // namespace
}  // namespace lumen::run
