// Needs: cpu. Rounds of a server without its sockets: answers in any order, late and hostile ones, going on from a
// checkpoint.
#include "apps/federate/rounds/rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::federate {

using model::engine;
using model::test_library;

namespace {

FederateSettings small_run() {
  FederateSettings s;
  s.network.family = "small_images";
  s.network.size = "xs";
  s.network.config = {{"size", 12}, {"classes", 4}, {"hidden", 16}};
  s.weights = s.upload = "int8_row";
  s.activations = "int8";
  s.batch = 8;
  s.rounds = 3;
  return s;
}

// Three clients by hand: each answers a task with its name's number in every weight.
struct HandPlayed {
  const model::TestFolder folder;
  std::vector<std::string> lines;
  FederateSettings settings = small_run();
  std::unique_ptr<FederateServer> server;

  HandPlayed() { begin(); }
  void begin() { server = std::make_unique<FederateServer>(engine(), *test_library(), settings, folder.path(), say()); }
  void resume() { server = FederateServer::resumed(engine(), *test_library(), folder.path(), settings.rounds, say()); }
  FederateServer::Say say() {
    return [this](const std::string& line) { lines.push_back(line); };
  }
  static ClientName who(int i) { return {"client-" + std::to_string(i), uint64_t(100 + i)}; }

  JoinMessage joining(int i) const {
    JoinMessage m{.who = who(i), .model = model_hash(settings, *test_library())};
    m.examples = uint64_t(10 * (i + 1));
    m.counts = {double(i), 1, 2, 3};
    m.rate = {100, 150, 80};
    return m;
  }
  Frame join(int i) { return server->answer(frame_of(FederateKind::join, pack_join(joining(i)))); }
  Frame ask(int i) { return server->answer(frame_of(FederateKind::ask, pack_speaker(who(i)))); }
  UpdateMessage update(int i) {
    const TaskMessage task = unpack_task(ask(i).content);
    Weights to = task.weights;
    for (auto& [name, numbers] : to)
      for (float& x : numbers) x += 0.01F * float(i + 1);
    UpdateMessage m{.who = who(i), .round = task.round, .base = task.base, .strategy = task.strategy};
    m.examples = uint64_t(10 * (i + 1));
    m.last_loss = 1;
    m.off = 0.001;
    m.change = encoded_change(engine(), server->network(), test_library()->formats().get("int8_row"), task.weights, to,
                              nullptr);
    return m;
  }
  bool send(const UpdateMessage& m) {
    return server->answer(frame_of(FederateKind::update, pack_update(m))).content == std::string(1, 1);
  }
};

TEST(FederateRounds, HaveTheSameBitsInWhateverOrderAnswersArrive) {
  Weights ends[2];
  for (int run = 0; run < 2; ++run) {
    HandPlayed play;
    for (const int i : {0, 1, 2}) play.join(run == 0 ? i : 2 - i);
    while (!play.server->is_done()) {
      std::vector<UpdateMessage> updates;
      for (const int i : {0, 1, 2}) updates.push_back(play.update(i));
      for (const int i : {0, 1, 2}) EXPECT_TRUE(play.send(updates[run == 0 ? i : 2 - i]));
    }
    ends[run] = play.server->weights();
    EXPECT_EQ(play.ask(0).kind, uint16_t(FederateKind::done));
  }
  EXPECT_EQ(ends[0], ends[1]);
  // The mean of 0.01, 0.02 and 0.03 by 10, 20 and 30 examples, three times.
  const Weights began = weights_of(apps::Network(engine(), *test_library(), small_run().network));
  EXPECT_NEAR(ends[0].at("last")[5] - began.at("last")[5], 3 * 0.14 / 6, 1e-4);
}

TEST(FederateRounds, RefuseWhatIsWrongAndNameTheClient) {
  HandPlayed play;
  JoinMessage other = play.joining(0);
  other.model ^= 1;
  EXPECT_THROW((void)play.server->answer(frame_of(FederateKind::join, pack_join(other))), Error);
  for (const int i : {0, 1, 2}) play.join(i);
  JoinMessage fourth = play.joining(3);
  EXPECT_THROW((void)play.server->answer(frame_of(FederateKind::join, pack_join(fourth))), Error);
  UpdateMessage good = play.update(1);
  UpdateMessage bad = good;
  bad.who.key = 1;
  EXPECT_THROW((void)play.send(bad), Error);
  bad = good;
  for (auto& [name, bytes] : bad.change.tensors)
    if (name == "last_level") std::fill(bytes.begin(), bytes.end(), 0xff);  // f32: no numbers
  try {
    (void)play.send(bad);
    ADD_FAILURE() << "taken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("client-1"), std::string::npos) << e.what();
  }
  EXPECT_NE(play.lines.back().find("client-1"), std::string::npos);
  bad = good;
  bad.base ^= 1;
  EXPECT_FALSE(play.send(bad)) << "of other weights: too late, or too early";
  EXPECT_TRUE(play.send(good));
  EXPECT_TRUE(play.send(good)) << "sent again: it was taken";
}

TEST(FederateRounds, EndWithoutThoseWhoVanishAndGoOnFromACheckpoint) {
  HandPlayed play;
  play.settings.deadline = 0.5;
  play.begin();
  for (const int i : {0, 1, 2}) play.join(i);
  const UpdateMessage first = play.update(0), last = play.update(1), late = play.update(2);
  EXPECT_TRUE(play.send(first));
  EXPECT_TRUE(play.send(last));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (play.server->round() == 0 && std::chrono::steady_clock::now() < until) play.server->look_at_clock();
  ASSERT_EQ(play.server->round(), 1);
  EXPECT_NE(play.lines.back().find("without client-2"), std::string::npos) << play.lines.back();
  EXPECT_FALSE(play.send(late));
  const Weights after = play.server->weights();
  play.server.reset();
  play.resume();
  EXPECT_EQ(play.server->round(), 1);
  EXPECT_EQ(play.server->weights(), after);
  EXPECT_TRUE(play.send(last)) << "its client may not have heard that it was taken";
  EXPECT_FALSE(play.send(late));
  EXPECT_EQ(play.ask(2).kind, uint16_t(FederateKind::task)) << "nobody has to join again";
}

// The same three clients where the server sees sums alone.
struct MaskedPlay : HandPlayed {
  std::vector<SumPartner> partners;
  std::vector<std::vector<float>> numbers{3};
  std::vector<UpdateMessage> offers{3};

  MaskedPlay() {
    settings.is_secure = true;
    begin();
    for (const int i : {0, 1, 2}) join(i);
    ready();
  }
  void ready() {
    partners.clear();
    for (const int i : {0, 1, 2}) {
      UpdateMessage m = update(i);
      const FormatRef format = test_library()->formats().get("int8_row");
      numbers[i] = numbers_of(decoded_change(engine(), server->network(), format, m.change), m.last_loss);
      partners.emplace_back(who(i).name);
      m.change = key_instead(partners[i].key());
      m.last_loss = 0;
      offers[i] = m;
    }
  }
  Frame offer(int i) { return server->answer(frame_of(FederateKind::update, pack_update(offers[i]))); }
  SumAttempt attempt(const SumGroup& g) const { return {g.round, g.base, g.attempt}; }
  Frame mask(int i, const SumGroup& g) {
    const MaskedMessage m{who(i), attempt(g), partners[i].masked(g, numbers[i])};
    return server->answer(frame_of(FederateKind::masked, pack_masked(m)));
  }
  Frame tell(int i, const SumGroup& g) {
    const SeedMessage m{who(i), attempt(g), partners[i].told(g.attempt)};
    return server->answer(frame_of(FederateKind::seed, pack_seed(m)));
  }
  SumGroup group() {
    for (const int i : {0, 1, 2}) (void)offer(i);
    return unpack_group(offer(0).content);
  }
};

TEST(SecureRounds, HaveThePlainSumBitForBit) {
  MaskedPlay play;
  const Weights before = play.server->weights();
  std::vector<uint32_t> plain(numbers_of(before, 0).size());
  for (const int i : {0, 1, 2}) {
    const std::vector<uint32_t> own = fixed_words(play.numbers[i], 10.0 * (i + 1) / 60);
    for (size_t k = 0; k < plain.size(); ++k) plain[k] += own[k];
  }
  EXPECT_EQ(play.offer(0).kind, uint16_t(FederateKind::wait));
  const SumGroup g = play.group();
  EXPECT_EQ(g.members.size(), 3U);
  for (const int i : {2, 0}) EXPECT_EQ(play.mask(i, g).kind, uint16_t(FederateKind::wait));
  EXPECT_EQ(play.mask(1, g).kind, uint16_t(FederateKind::tell));
  EXPECT_EQ(play.offer(0).kind, uint16_t(FederateKind::tell));
  for (const int i : {0, 2}) EXPECT_EQ(play.tell(i, g).kind, uint16_t(FederateKind::wait));
  EXPECT_EQ(play.tell(1, g).content, std::string(1, 1));
  EXPECT_EQ(play.server->round(), 1);
  EXPECT_EQ(play.offer(0).content, std::string(1, 1)) << "asked again: it was taken";
  size_t at = 0;
  for (const auto& [name, numbers] : before)
    for (size_t i = 0; i < numbers.size(); ++i, ++at)
      ASSERT_EQ(play.server->weights().at(name)[i], float(numbers[i] + fixed_number(plain[at]))) << name << i;
  EXPECT_NEAR(play.server->weights().at("last")[5] - before.at("last")[5], 0.14 / 6, 1e-4);
  EXPECT_NE(play.lines.back().find("loss 1.0000"), std::string::npos) << play.lines.back();
}

TEST(SecureRounds, EndWithoutThoseWhoVanishAndRefuseWhatIsNoKey) {
  MaskedPlay play;
  UpdateMessage bare = play.update(0);
  EXPECT_THROW((void)play.send(bare), Error) << "an update as it is";
  bare.change.tensors = {{"key", std::vector<uint8_t>(31)}};
  EXPECT_THROW((void)play.send(bare), Error);
  play.settings.deadline = 0.3;
  play.settings.rounds = 2;
  play.begin();
  for (const int i : {0, 1, 2}) play.join(i);
  play.ready();
  const SumGroup g = play.group();
  (void)play.mask(0, g);
  (void)play.mask(1, g);
  // Two are too few: the round comes to nothing, and nobody's update was taken.
  const Weights before = play.server->weights();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (play.server->round() == 0 && std::chrono::steady_clock::now() < until) play.server->look_at_clock();
  ASSERT_EQ(play.server->round(), 1);
  EXPECT_EQ(play.server->weights(), before);
  EXPECT_EQ(play.offer(0).content, std::string(1, 0));
  EXPECT_NE(play.lines.back().find("nothing"), std::string::npos) << play.lines.back();
  EXPECT_EQ(play.mask(2, g).content, std::string(1, 0)) << "too late";
  play.ready();
  const SumGroup next = play.group();
  for (const int i : {0, 1, 2}) (void)play.mask(i, next);
  for (const int i : {0, 1, 2}) (void)play.tell(i, next);
  EXPECT_TRUE(play.server->is_done());
  EXPECT_NE(play.server->weights(), before);
}

TEST(FederateRounds, TakeDistancesFromChangesWhereLabelsAreHidden) {
  HandPlayed play;
  for (const int i : {0, 1, 2}) {
    JoinMessage m = play.joining(i);
    if (i != 1) m.counts.clear();
    (void)play.server->answer(frame_of(FederateKind::join, pack_join(m)));
  }
  EXPECT_EQ(play.server->allocator()->clients()[0].distance, 0) << "nothing is known yet";
  std::vector<UpdateMessage> updates;
  for (const int i : {0, 1, 2}) updates.push_back(play.update(i));
  Weights away = unpack_task(play.ask(2).content).weights;
  for (auto& [name, numbers] : away)
    for (float& x : numbers) x -= 0.02F;
  updates[2].change = encoded_change(engine(), play.server->network(), test_library()->formats().get("int8_row"),
                                     unpack_task(play.ask(2).content).weights, away, nullptr);
  for (const int i : {0, 1, 2}) EXPECT_TRUE(play.send(updates[i]));
  // The mean goes the third's way: (10 .01 + 20 .02 - 30 .02) / 60 < 0.
  const auto& clients = play.server->allocator()->clients();
  EXPECT_NEAR(clients[0].distance, std::log(2.0), 1e-6);
  EXPECT_NEAR(clients[2].distance, 0, 1e-3);
  EXPECT_LT(clients[1].distance, std::log(2.0)) << "that of its labels";
  play.server.reset();
  play.resume();
  EXPECT_NEAR(play.server->allocator()->clients()[0].distance, std::log(2.0), 1e-6);
}

TEST(FederateSettingsText, GoesThereAndBackAndIsChecked) {
  const std::string text = settings_text(small_run());
  EXPECT_EQ(settings_text(parse_federate_settings(text, "here")), text);
  for (const auto& [from, to] : {std::pair("\"rounds\": 3", "\"rounds\": 0"),
                                 {"\"sampled\": 3", "\"sampled\": 9"},
                                 {"\"method\": \"full\"", "\"method\": \"best\""},
                                 {"\"rate\": 0.05", "\"rate\": \"x\""}}) {
    std::string bad = text;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, std::string(from).size(), to);
    EXPECT_THROW((void)parse_federate_settings(bad, "here"), Error) << from;
  }
}

TEST(SampledClients, AreAFunctionOfSeedAndRound) {
  EXPECT_EQ(sampled_clients(20, 10, 1, 4), sampled_clients(20, 10, 1, 4));
  EXPECT_NE(sampled_clients(20, 10, 1, 4), sampled_clients(20, 10, 1, 5));
  const auto some = sampled_clients(20, 10, 1, 4);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
}

}  // namespace
}  // namespace lumen::federate
