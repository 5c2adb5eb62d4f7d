// Needs: none. Messages of clients and servers: there and back, cut short, with what must not be in them.
#include "apps/federate/messages.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace lumen::federate {
namespace {

JoinMessage some_join() {
  JoinMessage m{.who = {"north-1", 77}, .model = 5};
  m.examples = 12;
  m.counts = {3, 0, 9};
  m.rate = {1, 2, 3};
  m.set_up = {0, 0.5, 0.1};
  m.memory = {100, 90, 120};
  m.memory_there = 1000;
  m.link = 1e6;
  return m;
}

TaskMessage some_task() {
  TaskMessage m{.round = 3, .base = 99, .strategy = ClientStrategy::aware};
  m.seconds = 2.5;
  m.weights = {{"a", {1, -2}}, {"b", {0.5F}}};
  return m;
}

UpdateMessage some_update() {
  UpdateMessage m{.who = {"north-1", 77}, .round = 3, .base = 99, .strategy = ClientStrategy::after};
  m.examples = 12;
  m.first_loss = 2;
  m.last_loss = 1;
  m.off = 0.01;
  m.seconds = 4;
  m.change.tensors = {{"a", {1, 2, 3}}, {"b", {}}};
  return m;
}

TEST(FederateMessages, GoThereAndBack) {
  EXPECT_EQ(unpack_join(pack_join(some_join())), some_join());
  EXPECT_EQ(unpack_task(pack_task(some_task())), some_task());
  EXPECT_EQ(unpack_speaker(pack_speaker({"a.b", 1})), (ClientName{"a.b", 1}));
  EXPECT_EQ(unpack_wait(pack_wait({0.5, "why"})), (WaitMessage{0.5, "why"}));
  const UpdateMessage update = unpack_update(pack_update(some_update()));
  EXPECT_EQ(update.change.tensors, some_update().change.tensors);
  EXPECT_EQ(pack_update(update), pack_update(some_update()));
}

SumGroup some_group() {
  SumGroup m{.round = 3, .base = 99, .attempt = 7};
  m.members = {{"north-1", 12, {1, 2}}, {"south", 9, {3}}};
  return m;
}

TEST(FederateMessages, OfSumsGoThereAndBackAndAreChecked) {
  const SumAttempt of{3, 99, 7};
  const MaskedMessage masked{{"north-1", 77}, of, {1, 0xffffffff, 3}};
  const SeedMessage seed{{"north-1", 77}, of, {9, 8, 7}};
  EXPECT_EQ(unpack_group(pack_group(some_group())), some_group());
  EXPECT_EQ(unpack_masked(pack_masked(masked)), masked);
  EXPECT_EQ(unpack_tell(pack_tell(of)), of);
  EXPECT_EQ(unpack_seed(pack_seed(seed)), seed);
  const auto cut_short = [](const std::string& whole, const auto& unpack) {
    for (size_t n = 0; n < whole.size(); ++n) EXPECT_THROW((void)unpack(whole.substr(0, n)), Error) << n;
    EXPECT_THROW((void)unpack(whole + "x"), Error);
  };
  cut_short(pack_group(some_group()), unpack_group);
  cut_short(pack_masked(masked), unpack_masked);
  cut_short(pack_tell(of), unpack_tell);
  cut_short(pack_seed(seed), unpack_seed);
  SumGroup bad = some_group();
  bad.members[0].name = "../x";
  EXPECT_THROW((void)unpack_group(pack_group(bad)), Error);
  std::string many = pack_group(some_group());
  many[16] = many[17] = many[18] = char(0xff);  // so many members
  EXPECT_THROW((void)unpack_group(many), Error);
}

TEST(FederateMessages, AreRefusedWhenCutShortOrTooLong) {
  const std::string join = pack_join(some_join()), task = pack_task(some_task()), update = pack_update(some_update());
  for (size_t n = 0; n < join.size(); ++n) EXPECT_THROW((void)unpack_join(join.substr(0, n)), Error) << n;
  for (size_t n = 0; n < task.size(); ++n) EXPECT_THROW((void)unpack_task(task.substr(0, n)), Error) << n;
  for (size_t n = 0; n < update.size(); ++n) EXPECT_THROW((void)unpack_update(update.substr(0, n)), Error) << n;
  EXPECT_THROW((void)unpack_join(join + "x"), Error);
  EXPECT_THROW((void)unpack_task(task + "x"), Error);
  EXPECT_THROW((void)unpack_update(update + "x"), Error);
}

TEST(FederateMessages, MayNotSayWhatIsNoNumber) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    TaskMessage task = some_task();
    task.weights["b"][0] = bad;
    EXPECT_THROW((void)unpack_task(pack_task(task)), Error);
    UpdateMessage update = some_update();
    update.last_loss = bad;
    EXPECT_THROW((void)unpack_update(pack_update(update)), Error);
    JoinMessage join = some_join();
    join.rate[1] = bad;
    EXPECT_THROW((void)unpack_join(pack_join(join)), Error);
    join = some_join();
    join.counts[1] = -1;
    EXPECT_THROW((void)unpack_join(pack_join(join)), Error);
  }
  for (const char* name : {"", "a b", "../x", "a\n", "ä"}) EXPECT_THROW(require_client_name(name), Error) << name;
}

}  // namespace
}  // namespace lumen::federate
