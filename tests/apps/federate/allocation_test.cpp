// Needs: none. Who trains how: the coarse choice on made-up measurements, its adjustment in a made-up simulator.
#include "apps/federate/allocation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/draws/draws.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

ClientFacts made_up_client(double speed, double distance, double share) {
  ClientFacts c;
  c.examples = 100;
  c.share = share;
  c.distance = distance;
  c.rate = {speed, 2 * speed, 0.8 * speed};
  c.bytes_down = 1000;
  c.bytes_up = {1000, 250, 250};
  c.link = 1e6;
  c.off = {0, 0.01, 0.002};
  return c;
}

TEST(CoarseAllocation, GivesQToWhomItCostsNothing) {
  // The last is five times as slow as all others: it decides the time.
  std::vector<ClientFacts> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(made_up_client(100, 0.1, 0.2));
  clients.push_back(made_up_client(20, 0.1, 0.2));
  const AllocationSettings settings;
  const Allocation out = coarse_allocation(clients, settings);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], ClientStrategy::aware) << i;
  EXPECT_EQ(out[4], ClientStrategy::after) << "the slowest in Q would take two and a half times as long";
  EXPECT_DOUBLE_EQ(round_seconds(clients, out, settings), unavoidable_seconds(clients, settings));
  EXPECT_EQ(speed_allocation(clients, settings), out);
}

TEST(CoarseAllocation, PaysForWhoseDataCount) {
  // Nobody has slack; one client has nearly all data, and skewed ones.
  std::vector<ClientFacts> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(made_up_client(100, 0, 0.02));
  clients.push_back(made_up_client(60, 0.6, 0.92));
  AllocationSettings settings;
  settings.lambda = 0.3;
  EXPECT_EQ(coarse_allocation(clients, settings)[4], ClientStrategy::aware);
  EXPECT_TRUE(is_worth_aware(clients, 4, settings));
  settings.lambda = 5;  // time is dear
  EXPECT_EQ(coarse_allocation(clients, settings)[4], ClientStrategy::after);
  EXPECT_FALSE(is_worth_aware(clients, 4, settings));
  settings.lambda = 0.3;
  clients[4].memory = {1, 1, 9};
  clients[4].memory_there = 5;
  EXPECT_EQ(coarse_allocation(clients, settings)[4], ClientStrategy::after) << "without memory there is no Q";
}

TEST(CoarseAllocation, TakesManyInGroups) {
  std::vector<ClientFacts> clients;
  for (int i = 0; i < 150; ++i) clients.push_back(made_up_client(i % 3 == 0 ? 20 : 100, 0.1, 1.0 / 150));
  const Allocation out = coarse_allocation(clients, {});
  for (int i = 0; i < 150; ++i) EXPECT_EQ(out[i], i % 3 == 0 ? ClientStrategy::after : ClientStrategy::aware) << i;
}

TEST(ColdAllocation, LooksAtDataAndSpeed) {
  std::vector<ClientFacts> clients;
  std::vector<double> speed;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(made_up_client(1, i >= 5 ? 0.5 : 0, 0.1));
    speed.push_back(i == 9 ? 1 : 10 + i);
  }
  const Allocation out = cold_allocation(clients, speed);
  EXPECT_EQ(out[0], ClientStrategy::after);
  EXPECT_EQ(out[9], ClientStrategy::after) << "its data count, and it is slow";
}

TEST(Allocations, OfAsMany) {
  EXPECT_EQ(aware_count(drawn_allocation(20, 7, 3)), 7U);
  EXPECT_NE(drawn_allocation(20, 7, 3), drawn_allocation(20, 7, 4));
  std::vector<ClientFacts> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(made_up_client(1, 0.1 * i, 1.0 / 6));
  const Allocation out = data_allocation(clients, 2, {});
  EXPECT_EQ(out[5], ClientStrategy::aware);
  EXPECT_EQ(out[4], ClientStrategy::aware);
  EXPECT_EQ(aware_count(out), 2U);
}

TEST(Ridges, FollowLines) {
  std::vector<std::vector<double>> x;
  std::vector<double> y;
  for (int i = 0; i < 20; ++i) {
    x.push_back({double(i), double(i * i % 7), 5});
    y.push_back(3 * x.back()[0] - 2 * x.back()[1] + 4);
  }
  const Ridge ridge(x, y, 1e-6);
  EXPECT_NEAR(ridge.at(std::vector<double>{30, 2, 5}), 90, 1e-3);
}

// A world in which Q makes losses fall faster and costs nobody time, while the coarse choice, from wrong guesses, has
// it for few. The windows show it.
struct MadeUpWorld {
  std::vector<ClientFacts> clients;
  double loss = 2;

  FineAdjuster::Window window(const Allocation& a, double done, uint64_t seed) {
    double aware = 0;
    for (size_t i = 0; i < a.size(); ++i) aware += a[i] == ClientStrategy::aware ? clients[i].share : 0;
    Draws draws(seed, 77);
    const double drop = 0.02 + 0.05 * aware + 0.001 * draws.normal();
    const double before = loss;
    loss -= drop;
    return {before, loss, 10, done};
  }
};

TEST(FineAdjustment, FindsABetterAllocation) {
  MadeUpWorld world;
  for (int i = 0; i < 10; ++i) world.clients.push_back(made_up_client(100, 0.05 * i, 0.1));
  Allocation coarse(10, ClientStrategy::after);
  coarse[0] = ClientStrategy::aware;
  FineAdjuster adjuster({}, coarse, 5);
  constexpr int kWindows = 40;
  double first = 0, last = 0;
  for (int w = 0; w < kWindows; ++w) {
    const double share = aware_count(adjuster.current()) / 10.0;
    if (w == 0) first = share;
    if (w >= kWindows - 5) last += share / 5;
    adjuster.finish(world.window(adjuster.current(), double(w) / kWindows, w), world.clients);
  }
  EXPECT_EQ(first, 0.1);
  EXPECT_GT(last, 0.5);
  EXPECT_EQ(adjuster.windows(), kWindows);
}

TEST(FineAdjustment, GoesOnFromItsState) {
  MadeUpWorld world;
  for (int i = 0; i < 10; ++i) world.clients.push_back(made_up_client(100, 0.05 * i, 0.1));
  FineAdjuster whole({}, Allocation(10, ClientStrategy::after), 5);
  for (int w = 0; w < 9; ++w) whole.finish(world.window(whole.current(), w / 20.0, w), world.clients);
  FineAdjuster again({}, Allocation(10, ClientStrategy::after), 5);
  again.set_state(whole.state(), "state");
  EXPECT_EQ(again.current(), whole.current());
  for (int w = 9; w < 15; ++w) {
    const FineAdjuster::Window window = world.window(whole.current(), w / 20.0, w);
    whole.finish(window, world.clients);
    again.finish(window, world.clients);
    EXPECT_EQ(again.current(), whole.current()) << w;
  }
  nlohmann::json bad = whole.state();
  bad["current"] = "012";
  EXPECT_THROW(again.set_state(bad, "state"), Error);
}

}  // namespace
}  // namespace lumen::federate
