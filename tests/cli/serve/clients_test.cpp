// needs: none. One client cannot have all connections, nor ask without end; others are as they were.
#include "cli/serve/clients.h"

#include <gtest/gtest.h>

namespace lumen::cli {
namespace {

TEST(ServeClients, ConnectionsOfAnAddressAreBounded) {
  ClientCounts counts(2);
  EXPECT_TRUE(counts.enter("a") && counts.enter("a") && counts.enter("b"));
  EXPECT_FALSE(counts.enter("a"));
  counts.leave("a");
  EXPECT_TRUE(counts.enter("a"));
  counts.leave("nobody");
  ClientCounts any(0);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(any.enter("a"));
}

TEST(ServeClients, RequestsComeBackWithTime) {
  ClientRates rates(2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rates.ask("a", 100), 0) << i;
  EXPECT_NEAR(rates.ask("a", 100), 0.5, 1e-9);
  EXPECT_EQ(rates.ask("b", 100), 0);
  EXPECT_EQ(rates.ask("a", 100.5), 0);
  EXPECT_GT(rates.ask("a", 100.5), 0);
  // Slower than one a second: the first is taken.
  ClientRates slow(0.1);
  EXPECT_EQ(slow.ask("a", 0), 0);
  EXPECT_NEAR(slow.ask("a", 1), 9, 1e-9);
  // Many clients: those who have been quiet are forgotten, and when none is nobody new comes in.
  ClientRates many(1);
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(many.ask(std::to_string(i), 0), 0);
  EXPECT_GT(many.ask("new", 0), 0);
  EXPECT_EQ(many.ask("new", 10), 0);
}

}  // namespace
}  // namespace lumen::cli
