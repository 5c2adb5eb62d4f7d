// Needs: none. Sums of which nobody sees the terms: keys and masks by what others say they are, a sum that is the plain
// one bit for bit, clients that vanish, and what hostile ends may not do.
#include "apps/federate/secure/sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "apps/draws/draws.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

KeyBytes bytes_of(const std::string& hex) {
  KeyBytes out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = uint8_t(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return out;
}

TEST(AgreementKeys, AreOfTwoAndOfNobodyElse) {
  const AgreementKey a, b, c;
  EXPECT_NE(a.open(), b.open());
  EXPECT_EQ(a.agreed(b.open()), b.agreed(a.open()));
  EXPECT_NE(a.agreed(b.open()), a.agreed(c.open()));
  EXPECT_THROW((void)a.agreed(KeyBytes{}), Error) << "a point of small order";
  // The other known point of order 8 (RFC 7748 section 6.1 asks to refuse zero).
  EXPECT_THROW((void)a.agreed(bytes_of("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")), Error);
}

TEST(Masks, AreChaCha20AndGoAwayAgain) {
  // RFC 8439, appendix A.1, test vector 1: the key stream of a key, nonce and counter of zeros.
  std::vector<uint32_t> words(16);
  add_mask(words, KeyBytes{}, false);
  EXPECT_EQ(words[0], 0xade0b876U);
  EXPECT_EQ(words[1], 0x903df1a0U);
  EXPECT_EQ(words[15], 0x8665eeb2U);
  add_mask(words, KeyBytes{}, true);
  EXPECT_EQ(words, std::vector<uint32_t>(16));
  std::vector<uint32_t> many(5000, 7);
  const KeyBytes key = drawn_bytes();
  add_mask(many, key, true);
  EXPECT_GT(std::ranges::count_if(many, [](uint32_t w) { return w > 1U << 16; }), 4900);
  add_mask(many, key, false);
  EXPECT_EQ(many, std::vector<uint32_t>(5000, 7));
}

TEST(DerivedKeys, AreHkdfAndDifferByPurpose) {
  const KeyBytes secret = drawn_bytes();
  EXPECT_EQ(derived_key(secret, "a"), derived_key(secret, "a"));
  EXPECT_NE(derived_key(secret, "a"), derived_key(secret, "b"));
  // HKDF-SHA256 without salt of 32 bytes of 0x0b and the text "x", from Python's hmac.
  KeyBytes known;
  known.fill(0x0b);
  EXPECT_EQ(derived_key(known, "x"), bytes_of("a9248a82a9dd2200d81e142d2a6a68bdb11371077ea0d6b78c98e457053f2662"));
}

TEST(FixedNumbers, AreWholeAndBounded) {
  EXPECT_EQ(fixed_words(std::array{0.5F, -0.25F}, 1), (std::vector<uint32_t>{1U << 23, 0U - (1U << 22)}));
  EXPECT_EQ(fixed_number(0U - (1U << 22)), -0.25);
  for (const float bad :
       {64.0F, -1e9F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_THROW((void)fixed_words(std::span(&bad, 1), 1), Error) << bad;
}

// Clients "a", "b", .. with numbers of their own, and the server's end.
struct Sums {
  std::vector<SumPartner> partners;
  std::vector<std::vector<float>> numbers;
  SumRound round{3, 99, 200};

  explicit Sums(size_t count) {
    Draws draws(5);
    for (size_t i = 0; i < count; ++i) {
      partners.emplace_back(std::string(1, char('a' + i)));
      numbers.emplace_back();
      for (int k = 0; k < 200; ++k) numbers.back().push_back(float(draws.normal()));
    }
  }
  GroupMember member(size_t i) const { return {std::string(1, char('a' + i)), 10 * (i + 1), partners[i].key()}; }
  void offer() {
    for (size_t i = 0; i < partners.size(); ++i) round.offer(int64_t(i), member(i));
    round.look(partners.size(), 1e9);
  }
  void send(size_t i) {
    round.take_words(int64_t(i), round.group().attempt, partners[i].masked(round.group(), numbers[i]));
  }
  void tell(size_t i) { round.take_seed(int64_t(i), round.group().attempt, partners[i].told(round.group().attempt)); }
  // What it would be if everybody had sent its numbers as they are.
  std::vector<uint32_t> plain(const std::vector<size_t>& who) const {
    double examples = 0;
    for (const size_t i : who) examples += double(10 * (i + 1));
    std::vector<uint32_t> out(200);
    for (const size_t i : who) {
      const std::vector<uint32_t> own = fixed_words(numbers[i], double(10 * (i + 1)) / examples);
      for (size_t k = 0; k < out.size(); ++k) out[k] += own[k];
    }
    return out;
  }
};

TEST(MaskedSums, AreThePlainOnesBitForBit) {
  Sums s(5);
  s.offer();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(s.round.request(int64_t(i)), SumRound::Request::words);
    s.send(i);
  }
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(s.round.request(int64_t(i)), SumRound::Request::seed);
    EXPECT_FALSE(s.round.is_there());
    s.tell(i);
  }
  ASSERT_TRUE(s.round.is_there());
  EXPECT_EQ(s.round.sum(), s.plain({0, 1, 2, 3, 4}));
  double mean = 0;
  for (size_t i = 0; i < 5; ++i) mean += double(i + 1) / 15 * s.numbers[i][7];
  EXPECT_NEAR(fixed_number(s.round.sum()[7]), mean, 5 / kFixedUnit);
}

TEST(MaskedSums, ShowNoTermToWhoHasAllMessages) {
  Sums s(3);
  s.offer();
  const std::vector<uint32_t> sent = s.partners[0].masked(s.round.group(), s.numbers[0]),
                              bare = fixed_words(s.numbers[0], 10.0 / 60);
  const KeyBytes own = s.partners[0].told(s.round.group().attempt);
  std::vector<uint32_t> left = sent;
  add_mask(left, own, true);  // pairs' masks are still there
  int64_t equal = 0, near = 0;
  for (size_t k = 0; k < left.size(); ++k) {
    equal += left[k] == bare[k] || sent[k] == bare[k];
    near += std::fabs(fixed_number(left[k] - bare[k])) < 1;
  }
  EXPECT_EQ(equal, 0);
  EXPECT_LT(near, 10) << "a uniform word is so small one time in 128";
}

TEST(MaskedSums, GoOnWithoutThoseWhoVanish) {
  Sums s(5);
  s.offer();
  const uint32_t first = s.round.group().attempt;
  for (const size_t i : {0, 1, 3, 4}) s.send(i);
  s.round.look(5, 1e9);
  EXPECT_EQ(s.round.request(0), SumRound::Request::nothing) << "one is waited for";
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  s.round.look(5, 0.001);
  EXPECT_EQ(s.round.group().attempt, first + 1);
  EXPECT_EQ(s.round.request(2), SumRound::Request::nothing);
  s.round.take_words(2, first, std::vector<uint32_t>(200));
  for (const size_t i : {0, 1, 3, 4}) s.send(i);
  for (const size_t i : {0, 1, 3, 4}) {
    EXPECT_THROW((void)s.partners[i].told(first), Error) << "of the attempt that was given up nobody tells";
    s.tell(i);
  }
  ASSERT_TRUE(s.round.is_there());
  EXPECT_EQ(s.round.sum(), s.plain({0, 1, 3, 4}));
  EXPECT_EQ(s.round.members(), (std::vector<int64_t>{0, 1, 3, 4}));
}

TEST(MaskedSums, AreLostWhenTooFewAreLeftOrOneGoesAtTheEnd) {
  Sums few(4);
  few.offer();
  few.send(0);
  few.send(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  few.round.look(4, 0.001);
  EXPECT_TRUE(few.round.is_lost());
  Sums late(3);
  late.offer();
  for (size_t i = 0; i < 3; ++i) late.send(i);
  late.round.look(3, 1e9);
  late.tell(0);
  late.tell(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  late.round.look(3, 0.001);
  EXPECT_TRUE(late.round.is_lost());
  EXPECT_FALSE(late.round.is_there());
}

TEST(SumPartners, RefuseGroupsThatWouldShowThem) {
  Sums s(4);
  s.offer();
  const SumGroup good = s.round.group();
  const auto refused = [&](SumGroup group) { EXPECT_THROW((void)s.partners[1].masked(group, s.numbers[1]), Error); };
  SumGroup bad = good;
  bad.members.resize(2);
  refused(bad);
  bad = good;
  bad.members.erase(bad.members.begin() + 1);
  refused(bad);  // without it
  bad = good;
  bad.members[1].key[0] ^= 1;
  refused(bad);  // with another key for it
  bad = good;
  bad.members[3].key = bad.members[2].key;
  refused(bad);
  bad = good;
  std::swap(bad.members[0], bad.members[2]);
  refused(bad);
  bad = good;
  bad.members[2].key = {};
  refused(bad);
  bad = good;
  bad.members[0].examples = 0;
  refused(bad);
  (void)s.partners[1].masked(good, s.numbers[1]);
  refused(good);  // the same attempt again
  (void)s.partners[1].told(good.attempt);
  bad = good;
  ++bad.attempt;
  refused(bad);  // a second sum of one update
  EXPECT_THROW((void)s.partners[1].told(good.attempt), Error);
}

TEST(SumRounds, RefuseClientsThatWouldSpoilThem) {
  Sums s(3);
  GroupMember bad = s.member(0);
  bad.key = {};
  EXPECT_THROW((void)s.round.offer(0, bad), Error);
  s.offer();
  Sums other(3);
  bad = other.member(0);
  EXPECT_FALSE(s.round.offer(0, bad)) << "the group is there";
  EXPECT_THROW(s.round.take_words(0, s.round.group().attempt, std::vector<uint32_t>(199)), Error);
  s.round.take_seed(0, s.round.group().attempt, KeyBytes{});
  EXPECT_FALSE(s.round.is_there());
  SumRound twice(1, 1, 4);
  EXPECT_TRUE(twice.offer(0, s.member(0)));
  EXPECT_THROW((void)twice.offer(1, s.member(0)), Error) << "another's key";
}

}  // namespace
}  // namespace lumen::federate
