// needs: none. Many sequences in pages: each as if it were alone, whatever is shared, copied, freed and let go by
// windows; in every format of the cache.
#include "model/infer/session/session_many.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

using Tokens = std::vector<text::TokenId>;

const SessionOptions kAlone = {.context = 16, .chunk = 8, .exact = true};

SessionOptions pool(int64_t places, int64_t page, int64_t chunk = 8) {
  SessionOptions options;
  options.context = places;
  options.page = page;
  options.chunk = chunk;
  options.exact = true;
  return options;
}

void expect_near(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t v = 0; v < want.size(); ++v) EXPECT_NEAR(got[v], want[v], 1e-4) << what;
}

std::vector<float> alone(const LoadedModel& loaded, const Tokens& tokens, SessionOptions options = kAlone) {
  Session s(loaded, options);
  const auto logits = s.feed(tokens);
  return {logits.begin(), logits.end()};
}

std::vector<float> feed(ManySession& many, int sequence, const Tokens& tokens) {
  const ManySession::Part part{sequence, tokens};
  return many.feed({&part, 1})[0];
}

text::TokenId best(std::span<const float> logits) {
  return static_cast<text::TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(ManySession, EachSequenceAsIfItWereAlone) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  for (const int64_t page : {1, 4, 16}) {
    ManySession many(loaded, pool(160, page), {.sequences = 9});
    std::vector<Tokens> sequences;
    std::vector<int> numbers;
    for (int i = 0; i < 9; ++i) {
      sequences.emplace_back();
      for (int k = 0; k < 1 + i % 4; ++k) sequences.back().push_back((i * 5 + k * 3) % 11);
      numbers.push_back(many.open());
    }
    std::vector<std::unique_ptr<Session>> apart;
    std::vector<ManySession::Part> parts;
    for (size_t i = 0; i < sequences.size(); ++i) {
      parts.push_back({numbers[i], sequences[i]});
      apart.push_back(std::make_unique<Session>(loaded, kAlone));
    }
    auto logits = many.feed(parts);
    for (int round = 0; round < 6; ++round) {
      parts.clear();
      for (size_t i = 0; i < sequences.size(); ++i) {
        const auto want = apart[i]->feed(round == 0 ? std::span<const text::TokenId>(sequences[i])
                                                    : std::span<const text::TokenId>(&sequences[i].back(), 1));
        expect_near(logits[i], want, std::to_string(i) + " " + std::to_string(round));
        sequences[i].push_back(best(want));
        parts.push_back({numbers[i], {&sequences[i].back(), 1}});
      }
      if (round < 5) logits = many.feed(parts);
    }
  }
}

TEST(ManySession, SharedPagesAreCopiedBeforeTheyAreWritten) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  ManySession many(loaded, pool(20, 4), {.sequences = 3});
  EXPECT_EQ(many.pages(), 5);
  const int a = many.open(), b = many.open(), c = many.open();
  (void)feed(many, a, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(many.free_pages(), 3);
  EXPECT_EQ(many.share(a, b, 5), 5);
  EXPECT_EQ(many.share(a, c, 4), 4);
  EXPECT_EQ(many.free_pages(), 3);  // nothing new
  EXPECT_EQ(many.missing_pages(b, 1), 1);
  EXPECT_EQ(many.missing_pages(a, 1), 1);
  expect_near(feed(many, b, {7, 8}), alone(loaded, {1, 2, 3, 4, 5, 7, 8}), "b");
  EXPECT_EQ(many.free_pages(), 2);
  EXPECT_EQ(many.missing_pages(a, 2), 0);  // nobody else has its last page any more
  expect_near(feed(many, a, {9}), alone(loaded, {1, 2, 3, 4, 5, 6, 9}), "a");
  expect_near(feed(many, c, {7}), alone(loaded, {1, 2, 3, 4, 7}), "c");
  EXPECT_EQ(many.free_pages(), 1);
  many.close(a);  // what it shares stays
  EXPECT_EQ(many.free_pages(), 2);
  expect_near(feed(many, b, {9}), alone(loaded, {1, 2, 3, 4, 5, 7, 8, 9}), "b");
  EXPECT_EQ(many.rewind(b, 5), 5);
  expect_near(feed(many, b, {10}), alone(loaded, {1, 2, 3, 4, 5, 10}), "b");
  many.close(b);
  many.close(c);
  EXPECT_EQ(many.free_pages(), 5);
}

TEST(ManySession, AFullCacheRefusesAndChangesNothing) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  ManySession many(loaded, pool(12, 4), {.longest = 12, .sequences = 2});
  const int a = many.open(), b = many.open();
  EXPECT_THROW((void)many.open(), Error);
  (void)feed(many, a, {1, 2, 3, 4, 5});
  EXPECT_THROW((void)feed(many, b, {1, 2, 3, 4, 5}), Error);
  EXPECT_EQ(many.length(b), 0);
  EXPECT_EQ(many.free_pages(), 1);
  expect_near(feed(many, b, {7, 8}), alone(loaded, {7, 8}), "b");
  const Tokens one = {1};
  const ManySession::Part both[] = {{a, one}, {b, one}};
  (void)many.feed(both);
  (void)feed(many, a, {1, 2});
  EXPECT_THROW((void)feed(many, a, {1}), Error);
  many.close(b);
  expect_near(feed(many, a, {9}), alone(loaded, {1, 2, 3, 4, 5, 1, 1, 2, 9}), "a");
  EXPECT_THROW((void)feed(many, a, {1, 2, 3, 4}), Error);  // longer than a sequence may be
}

// Pages move as they are: a sequence that goes on in a copy writes what it would have written.
TEST(ManySession, CachesInFormats) {
  const arch::FamilyRef family = test_library()->family("llama");
  const arch::Model m = initialise(family,
                                   family->config("", {{"vocab", 64},
                                                       {"hidden", 64},
                                                       {"layers", 2},
                                                       {"heads", 4},
                                                       {"kv_heads", 2},
                                                       {"head_dim", 32},
                                                       {"ffn", 64},
                                                       {"context", 128}}),
                                   3);
  const LoadedModel loaded(engine(), m);
  for (const char* name : {"q8_0", "q4_0", "f16", "int8_row"}) {
    const FormatRef f = test_library()->formats().get(name);
    SessionOptions options = pool(256, 8, 16), single = options;
    options.keys = options.values = single.keys = single.values = f;
    single.context = 128;
    ManySession many(loaded, options, {.sequences = 2});
    Tokens begin;
    for (int i = 0; i < 45; ++i) begin.push_back((i * i + 3) % 64);
    const int a = many.open(), b = many.open();
    (void)feed(many, a, begin);
    EXPECT_EQ(many.share(a, b, 44), 44);
    Tokens whole(begin.begin(), begin.begin() + 44);
    whole.push_back(9);
    const auto got = feed(many, b, {9}), want = alone(loaded, whole, single);
    const auto [low, high] = std::minmax_element(want.begin(), want.end());
    for (size_t v = 0; v < want.size(); ++v) EXPECT_NEAR(got[v], want[v], 2e-3 * (*high - *low)) << name;
    const auto again = feed(many, a, {5});  // its page is untouched
    begin.push_back(5);
    const auto mine = alone(loaded, begin, single);
    for (size_t v = 0; v < mine.size(); ++v) EXPECT_NEAR(again[v], mine[v], 2e-3 * (*high - *low)) << name;
  }
}

// ---- Layers with a window

arch::Model windowed(const std::string& name, int64_t window) {
  arch::Model m = read_hf(test_library(),
                          std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures" / "families" / name);
  m.config["context"] = 256;
  m.config["window_size"] = static_cast<double>(window);
  return m;
}

Tokens long_text(int64_t count, int64_t salt) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>((i * i * 7 + i * 13 + salt) % 61));
  return tokens;
}

class ManyWindows : public testing::TestWithParam<const char*> {};

TEST_P(ManyWindows, PagesNoTokenSeesGoBack) {
  const arch::Model m = windowed(GetParam(), 7);
  const LoadedModel loaded(engine(), m);
  SessionOptions everything = kAlone;
  everything.context = 256;
  everything.chunk = 128;  // nothing is forgotten
  ManySession many(loaded, pool(600, 4, 16), {.longest = 200, .sequences = 3});
  ASSERT_GT(many.near_pages(), 0);
  EXPECT_LT(many.near_pages(), many.pages() / 4);
  std::vector<Tokens> sequences;
  std::vector<ManySession::Part> parts;
  std::vector<std::unique_ptr<Session>> apart;
  for (int i = 0; i < 3; ++i) {
    sequences.push_back(long_text(150, i * 5));
    apart.push_back(std::make_unique<Session>(loaded, everything));
    parts.push_back({many.open(), {}});
  }
  size_t done[3] = {0, 0, 0};
  for (const size_t count : {30U, 1U, 1U, 50U, 1U, 1U, 1U, 1U, 3U}) {
    for (size_t i = 0; i < 3; ++i) {
      const size_t mine = count == 1 ? 1 : count + i;
      parts[i].tokens = std::span(sequences[i]).subspan(done[i], mine);
      done[i] += mine;
    }
    const auto logits = many.feed(parts);
    for (size_t i = 0; i < 3; ++i) expect_near(logits[i], apart[i]->feed(parts[i].tokens), std::to_string(done[i]));
    // Between steps each holds what its next token sees: 6 positions in at most 3 pages.
    EXPECT_GE(many.free_near_pages(), many.near_pages() - 9);
  }
  // A beginning whose window has moved on cannot be shared, and going back to it means reading again.
  const auto length = static_cast<int64_t>(done[0]);
  many.close(parts[1].sequence);
  const int late = many.open();
  EXPECT_EQ(many.share(parts[0].sequence, late, 20), 0);
  EXPECT_EQ(many.length(late), 0);
  EXPECT_EQ(many.share(parts[0].sequence, late, length - 1), length - 1);
  Tokens other(sequences[0].begin(), sequences[0].begin() + length - 1);
  other.push_back(3);
  other.push_back(4);
  expect_near(feed(many, late, {3, 4}), alone(loaded, other, everything), "shared");
  EXPECT_EQ(many.rewind(late, 30), 0);
  EXPECT_EQ(many.length(late), 0);
  expect_near(feed(many, late, Tokens(other.begin(), other.begin() + 40)),
              alone(loaded, Tokens(other.begin(), other.begin() + 40), everything), "read again");
  for (const int sequence : {parts[0].sequence, parts[2].sequence, late}) many.close(sequence);
  EXPECT_EQ(many.free_near_pages(), many.near_pages());
  EXPECT_EQ(many.free_pages(), many.pages());
}

INSTANTIATE_TEST_SUITE_P(All, ManyWindows, testing::Values("mistral", "gemma2", "exaone4"),
                         [](const auto& p) { return std::string(p.param); });

// What prepare() has compiled is what later steps use.
TEST(ManySession, PreparesAllOfItsSteps) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  ManySession many(loaded, {.context = 256, .chunk = 8, .mixed = true}, {.longest = 16, .sequences = 5, .rows = 7});
  int steps = 0;
  while (many.prepare()) ++steps;
  EXPECT_EQ(std::ssize(ManySession::shapes({.context = 256, .chunk = 8}, {.sequences = 5, .rows = 7}, true)), steps);
  const int64_t bytes = many.taken_bytes();
  const std::vector<text::TokenId> text = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  std::vector<int> open;
  for (int i = 0; i < 5; ++i) open.push_back(many.open());
  std::vector<ManySession::Part> parts;
  for (const int sequence : open) parts.push_back({sequence, std::span(text).first(1)});
  (void)many.feed(parts);
  const ManySession::Part whole{open[0], text}, two[] = {{open[1], text}, {open[2], std::span(text).first(2)}};
  (void)many.feed({&whole, 1});
  (void)many.feed(two);
  EXPECT_EQ(many.taken_bytes(), bytes);
  EXPECT_FALSE(many.prepare());
}

}  // namespace
}  // namespace lumen::model::infer
