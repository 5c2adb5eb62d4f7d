// needs: none. Orders that visit each number once.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "model/data/examples/order.h"

namespace lumen::model::data {
namespace {

std::vector<uint64_t> all(const Permutation& p) {
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < p.size(); ++i) out.push_back(p.at(i));
  return out;
}

TEST(DataOrder, EachNumberOnceForEverySize) {
  for (uint64_t size = 1; size < 300; ++size) {
    const auto order = all(Permutation(size, 7, size % 3));
    EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), size);
    EXPECT_LT(*std::max_element(order.begin(), order.end()), size);
  }
}

TEST(DataOrder, DependsOnSeedAndEpochAlone) {
  const auto first = all(Permutation(1000, 1, 0));
  EXPECT_EQ(first, all(Permutation(1000, 1, 0)));
  EXPECT_NE(first, all(Permutation(1000, 1, 1)));
  EXPECT_NE(first, all(Permutation(1000, 2, 0)));
}

// Far from the order it came in: as many fixed places and neighbours as chance has (one of each, on average).
TEST(DataOrder, Shuffles) {
  int fixed = 0, neighbours = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto order = all(Permutation(1000, seed, 0));
    for (size_t i = 0; i < order.size(); ++i) {
      fixed += order[i] == i;
      neighbours += i > 0 && order[i] == order[i - 1] + 1;
    }
  }
  EXPECT_LT(fixed, 60);
  EXPECT_LT(neighbours, 60);
}

// Numbers beyond what any file has need no memory.
TEST(DataOrder, LargeSizes) {
  const Permutation p(uint64_t{1} << 45, 3, 2);
  EXPECT_LT(p.at(12345), p.size());
  EXPECT_NE(p.at(0), p.at(1));
}

}  // namespace
}  // namespace lumen::model::data
