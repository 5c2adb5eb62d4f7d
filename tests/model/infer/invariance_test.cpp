// needs: none; the last test wants an AMD chip (LUMEN_STAND_IN_AMD). SessionOptions::invariant: the bits of a
// sequence's logits depend on neither its neighbours in a step, nor on how its prompt was cut, nor on what of it was
// cached. ManyLimits::fixed gives the same with kernels that know nothing of it.
#include <cstdlib>
#include <cstring>
#include <random>

#include "model/compress/quantize.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

using Tokens = std::vector<text::TokenId>;

constexpr int64_t kVocabulary = 320, kContext = 192, kPrompt = 45, kMade = 4;
constexpr int kRounds = 6;

arch::Model model_of(const std::string& family, const graph::Config& further = {}) {
  graph::Config sizes = {{"vocab", kVocabulary}, {"hidden", 256}, {"layers", 2}, {"heads", 4}, {"context", kContext}};
  for (const auto& [name, value] : further) sizes[name] = value;
  return initialise(test_library()->family(family), test_library()->family(family)->config("", sizes), 3);
}

const graph::Config kGrouped = {{"kv_heads", 2}, {"head_dim", 64}, {"ffn", 512}};

arch::Model held_in(const arch::Model& m, const std::string& type) {
  if (type == "f32") return m;
  compress::QuantizeOptions to;
  to.target = type;
  to.fallbacks = {"q8_0", "f32"};
  return quantize(engine(), m, to, nullptr);
}

Tokens tokens_of(std::mt19937& random, int64_t count) {
  Tokens out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<text::TokenId>(random() % kVocabulary));
  return out;
}

// Feeds the sequence `number` from `from` on, in random pieces and next to others that get random tokens of their own.
// Returns the logits of its last token.
std::vector<float> feed_among(ManySession& many, int number, const Tokens& tokens, int64_t from,
                              const std::vector<int>& others, std::mt19937& random, bool mixed) {
  std::vector<float> last;
  for (int64_t at = from; at < std::ssize(tokens);) {
    const int64_t left = std::ssize(tokens) - at, count = 1 + random() % left;
    std::vector<std::pair<int, Tokens>> texts = {{number, {tokens.begin() + at, tokens.begin() + at + count}}};
    for (const int other : others)
      if (random() % 2 == 0 && many.length(other) < kContext / 2)
        texts.emplace_back(other, tokens_of(random, 1 + random() % 5));
    std::shuffle(texts.begin(), texts.end(), random);
    std::vector<ManySession::Part> parts;
    int64_t sum = 0;
    for (const auto& [sequence, part] : texts) parts.push_back({sequence, part}), sum += std::ssize(part);
    size_t mine = 0;
    while (parts[mine].sequence != number) ++mine;
    if (mixed && sum <= many.most_mixed()) {
      const std::vector<Asked> asked(parts.size());
      const LogitRow row = many.feed_mixed(parts, asked)[mine];
      last.assign(row.whole().begin(), row.whole().end());
    } else if (sum <= many.rows() && random() % 2 == 0) {  // as drafts are checked
      size_t row = 0;
      for (size_t i = 0; i <= mine; ++i) row += parts[i].tokens.size();
      const std::vector<LogitRow> rows = many.feed_apart(parts);
      last.assign(rows[row - 1].whole().begin(), rows[row - 1].whole().end());
      for (const ManySession::Part& part : parts) many.settle(part.sequence, many.length(part.sequence));
    } else {
      last = many.feed(parts)[mine];
    }
    at += count;
  }
  return last;
}

// `fixed`: by steps of one width, with the kernels of every device.
void expect_invariant(run::Engine& on, const arch::Model& m, SessionOptions options, const std::string& what,
                      bool fixed = false) {
  const LoadedModel loaded(on, m);
  std::mt19937 random(7);
  const Tokens text = tokens_of(random, kPrompt + kMade);
  options.context = 2048;
  options.chunk = 32;
  options.invariant = !fixed;
  options.mixed = true;
  ManySession many(loaded, options,
                   {.longest = kContext, .sequences = 7, .drafted = 8, .rows = 16, .fixed = fixed ? 32 : 0});
  std::vector<std::vector<float>> want;
  const int alone = many.open();
  for (int64_t made = 0; made < kMade; ++made) {
    const Tokens part(text.begin() + (made == 0 ? 0 : kPrompt + made - 1), text.begin() + kPrompt + made);
    const ManySession::Part one{alone, part};
    want.push_back(many.feed({&one, 1})[0]);
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> others;
    for (int i = 0; i < 1 + round; ++i) others.push_back(many.open());
    if (round == kRounds - 1) many.close(others.back()), others.pop_back();
    const int number = many.open();
    const int64_t shared = round % 2 == 0 ? 0 : many.share(alone, number, 1 + random() % (kPrompt - 1));
    for (int64_t made = 0; made < kMade; ++made) {
      const Tokens until(text.begin(), text.begin() + kPrompt + made);
      const auto got =
          feed_among(many, number, until, made == 0 ? shared : kPrompt + made - 1, others, random, round % 3 == 1);
      ASSERT_EQ(got.size(), want[made].size());
      int64_t differ = 0;
      for (size_t v = 0; v < got.size(); ++v) differ += std::memcmp(&got[v], &want[made][v], sizeof(float)) != 0;
      EXPECT_EQ(differ, 0) << what << ", round " << round << ", token " << made << ", shared " << shared;
    }
    many.close(number);
    for (const int other : others) many.close(other);
  }
}

class Invariance : public testing::TestWithParam<const char*> {};

TEST_P(Invariance, OfNeighboursChunksAndWhatIsCached) {
  const arch::Model held = held_in(model_of("llama", kGrouped), GetParam());
  expect_invariant(engine(), held, {}, GetParam());
  SessionOptions cached;
  cached.keys = cached.values = test_library()->formats().get("q8_0");
  expect_invariant(engine(), held, cached, std::string(GetParam()) + ", cache q8_0");
}

TEST_P(Invariance, WithShorterVectors) {
  const machine::MachineRef other = machine::find_machine("x86-64-v3");
  if (machine::native_machine()->triple != other->triple) GTEST_SKIP() << "this processor is another";
  run::Engine::Options options;
  options.threads = 2;
  options.machine = other;
  run::Engine e(options);
  expect_invariant(e, held_in(model_of("llama", kGrouped), GetParam()), {}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Formats, Invariance,
                         testing::Values("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q4_k", "q6_k", "q2_k",
                                         "iq4_nl", "mxfp4"),
                         [](const auto& type) { return std::string(type.param); });

// Windows, experts, latent attention, learned positions.
TEST(InvarianceOfFamilies, OfNeighboursChunksAndWhatIsCached) {
  graph::Config experts = kGrouped, windows = kGrouped;
  experts.insert({{"experts", 8}, {"picked", 2}, {"expert_ffn", 128}});
  windows.insert({{"window_size", 24}});
  const std::vector<std::pair<std::string, graph::Config>> families = {
      {"gpt2", {}}, {"gemma3", windows}, {"qwen3_moe", experts}, {"mixtral", experts}};
  for (const auto& [family, sizes] : families)
    for (const char* type : {"f16", "q4_0"})
      expect_invariant(engine(), held_in(model_of(family, sizes), type), {}, family + " " + type);
}

TEST(InvarianceByFixedSteps, OfNeighboursChunksAndWhatIsCached) {
  graph::Config experts = kGrouped, windows = kGrouped;
  experts.insert({{"experts", 8}, {"picked", 2}, {"expert_ffn", 128}});
  windows.insert({{"window_size", 24}});
  for (const char* type : {"f32", "f16", "q4_0", "q4_k"})
    expect_invariant(engine(), held_in(model_of("llama", kGrouped), type), {}, type, true);
  expect_invariant(engine(), held_in(model_of("gemma3", windows), "q4_0"), {}, "gemma3", true);
  expect_invariant(engine(), held_in(model_of("qwen3_moe", experts), "q4_0"), {}, "qwen3_moe", true);
}

// The logits of all tokens of a prompt are those of feeding it, and close to those of other steps.
TEST(InvarianceByFixedSteps, AllTokensAtOnce) {
  const arch::Model m = model_of("llama", kGrouped);
  const LoadedModel loaded(engine(), m);
  SessionOptions options{.context = 256, .chunk = 32, .exact = true};
  ManySession fixed(loaded, options, {.sequences = 3, .fixed = 32}), other(loaded, options, {.sequences = 3});
  std::mt19937 random(9);
  const Tokens text = tokens_of(random, 41);
  const int whole = fixed.open(), pieces = fixed.open(), usual = other.open();
  std::vector<std::vector<float>> got, want;
  fixed.feed_all(whole, text, [&](std::span<const float> row) { got.emplace_back(row.begin(), row.end()); });
  other.feed_all(usual, text, [&](std::span<const float> row) { want.emplace_back(row.begin(), row.end()); });
  ASSERT_EQ(got.size(), text.size());
  for (size_t t = 0; t < text.size(); ++t) {
    const ManySession::Part part{pieces, std::span(text).subspan(t, 1)};
    ASSERT_EQ(fixed.feed({&part, 1})[0], got[t]) << t;
    for (size_t v = 0; v < got[t].size(); ++v) ASSERT_NEAR(got[t][v], want[t][v], 1e-3) << t;
  }
}

// The kernels of AMD's GPUs, in the interpreter of their code: a sequence alone, and the same in pieces between others.
TEST(InvarianceOnAnAmdChip, OfASequenceAloneAndAmongOthers) {
  if (!std::getenv("LUMEN_STAND_IN_AMD")) GTEST_SKIP() << "no chip is named";
  run::Engine::Options options;
  options.cache_folder = "off";
  options.device = "hip";
  options.tries = false;
  run::Engine chip(options);
  const graph::Config small = {{"hidden", 64},  {"layers", 1},    {"heads", 2},
                               {"kv_heads", 1}, {"head_dim", 32}, {"ffn", 64}};
  for (const char* type : {"f16", "q4_0"}) {
    graph::Config sizes = {{"vocab", kVocabulary}, {"context", 64}};
    sizes.insert(small.begin(), small.end());
    const auto family = test_library()->family("llama");
    const arch::Model held = held_in(initialise(family, family->config("", sizes), 3), type);
    const LoadedModel loaded(chip, held);
    SessionOptions wanted{.context = 256, .chunk = 16};
    wanted.invariant = true;
    ManySession many(loaded, wanted, {.longest = 64, .sequences = 4, .rows = 8});
    std::mt19937 random(5);
    const Tokens text = tokens_of(random, 7);
    const int alone = many.open();
    const ManySession::Part whole{alone, text};
    const std::vector<float> want = many.feed({&whole, 1})[0];
    const int one = many.open(), two = many.open(), again = many.open();
    const Tokens other = tokens_of(random, 3), third = tokens_of(random, 2);
    const std::span<const text::TokenId> all(text);
    (void)many.feed(std::vector<ManySession::Part>{{one, other}, {again, all.first(3)}});
    const auto rows = many.feed(std::vector<ManySession::Part>{{two, third}, {again, all.subspan(3)}, {one, third}});
    ASSERT_EQ(rows[1].size(), want.size());
    EXPECT_EQ(std::memcmp(rows[1].data(), want.data(), want.size() * sizeof(float)), 0) << type;
  }
}

}  // namespace
}  // namespace lumen::model::infer
