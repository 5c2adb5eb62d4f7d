// needs: none. The merging heap against the definition, character by character.
#include "model/text/vocabulary/byte_pair.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace lumen::model::text {
namespace {

// The definition: find the pair of lowest rank, leftmost, merge it, start again.
std::vector<TokenId> by_definition(const std::string& word, const PairTable& merges) {
  std::vector<TokenId> s;
  for (const char c : word) s.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best = s.size();
    int32_t rank = INT32_MAX;
    for (size_t i = 0; i + 1 < s.size(); ++i) {
      const auto m = merges.find(s[i], s[i + 1]);
      if (m.rank >= 0 && m.rank < rank) {
        rank = m.rank;
        best = i;
      }
    }
    if (best == s.size()) return s;
    s[best] = merges.find(s[best], s[best + 1]).id;
    s.erase(s.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

RC_GTEST_PROP(BytePair, HeapEqualsDefinition, ()) {
  PairTable merges;
  TokenId next = 256;
  const int count = *rc::gen::inRange(0, 40);
  for (int i = 0; i < count; ++i) {
    // Operands among the letters a..d and the tokens made so far, so that merges build on merges.
    const auto operand = [&] {
      const int pick = *rc::gen::inRange(0, 4 + next - 256);
      return pick < 4 ? 'a' + pick : 256 + pick - 4;
    };
    const TokenId left = operand(), right = operand();
    if (merges.insert(left, right, {i, next})) ++next;
  }
  const auto word = *rc::gen::container<std::string>(rc::gen::inRange('a', static_cast<char>('e')));
  std::array<TokenId, 256> bytes;
  for (int b = 0; b < 256; ++b) bytes[b] = b;
  const auto expected = by_definition(word, merges);
  const BytePairModel model(bytes, std::move(merges), nullptr, nullptr, std::nullopt);
  std::vector<TokenId> out;
  model.encode(word, out);
  RC_ASSERT(out == expected);
}

TEST(BytePair, LongRunsTakeNoQuadraticTime) {
  PairTable merges;
  merges.insert('a', 'a', {0, 256});
  for (TokenId id = 256; id < 270; ++id) merges.insert(id, id, {id - 255, id + 1});
  std::array<TokenId, 256> bytes;
  for (int b = 0; b < 256; ++b) bytes[b] = b;
  const BytePairModel model(bytes, std::move(merges), nullptr, nullptr, std::nullopt);
  std::vector<TokenId> out;
  model.encode(std::string(1 << 17, 'a'), out);
  EXPECT_EQ(out, std::vector<TokenId>(1 << 2, 270));
}

TEST(BytePair, MissingBytesAreUnknownOrErrors) {
  std::array<TokenId, 256> bytes;
  bytes.fill(-1);
  bytes['a'] = 0;
  std::vector<TokenId> out;
  BytePairModel(bytes, PairTable(), nullptr, nullptr, 7).encode("ab", out);
  EXPECT_EQ(out, (std::vector<TokenId>{0, 7}));
  EXPECT_THROW(BytePairModel(bytes, PairTable(), nullptr, nullptr, std::nullopt).encode("ab", out), Error);
}

TEST(PairTable, GrowsAndKeepsTheFirst) {
  PairTable table;
  for (TokenId i = 0; i < 5000; ++i) EXPECT_TRUE(table.insert(i, i * 7, {i, i + 1}));
  EXPECT_FALSE(table.insert(10, 70, {1, 1}));
  for (TokenId i = 0; i < 5000; ++i) EXPECT_EQ(table.find(i, i * 7).id, i + 1);
  EXPECT_EQ(table.find(1, 1).rank, -1);
}

}  // namespace
}  // namespace lumen::model::text
