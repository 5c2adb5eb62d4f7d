// needs: none. Families whose layers recur: logits and outputs are the same whatever the chunks, after rewinds, shifts
// and rejected drafts, among neighbours, with shared prefixes, and when sequences take each other's slots.
#include <algorithm>
#include <cmath>

#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/generate_many.h"
#include "model/infer/generate/sequence_batch.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kContext = 256;
// Of the range of all logits. Chunks round otherwise than single tokens, and norms of small outputs enlarge that.
constexpr double kBound = 5e-5;
const SessionOptions kOptions = {.context = kContext, .chunk = 16, .exact = true};

arch::Model fixture(const std::string& name) {
  arch::Model m = read_hf(test_library(), kFamilies / name);
  m.config["context"] = kContext;
  m.tokenizer = text::Tokenizer::characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,;:!?");
  return m;
}

std::vector<text::TokenId> text(int64_t count, int64_t salt = 0) {
  std::vector<text::TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>((i * i * 7 + i * 13 + salt) % 59));
  return tokens;
}

double off(std::span<const float> a, std::span<const float> b) {
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return std::isfinite(most) ? most / (static_cast<double>(*high) - *low) : INFINITY;
}

// The logits behind these tokens, of a session that reads them one by one.
std::vector<float> alone(const LoadedModel& loaded, std::span<const text::TokenId> tokens) {
  SessionOptions options = kOptions;
  options.chunk = 1;
  Session s(loaded, options);
  const auto logits = s.feed(tokens);
  return {logits.begin(), logits.end()};
}

class Hybrid : public testing::TestWithParam<const char*> {
 protected:
  const arch::Model m = fixture(GetParam());
  const LoadedModel loaded{engine(), m};
};

TEST_P(Hybrid, ChunksDoNotMatter) {
  const auto tokens = text(150);
  Session chunked(loaded, kOptions);
  size_t done = 0;
  for (const size_t count : {3U, 40U, 1U, 1U, 17U, 5U, 60U, 1U, 22U}) {
    const auto got = chunked.feed(std::span(tokens).subspan(done, count));
    done += count;
    EXPECT_LT(off(got, alone(loaded, std::span(tokens).first(done))), kBound) << "behind " << done;
  }
}

TEST_P(Hybrid, RewindsComputeAgainWhatIsGone) {
  const auto tokens = text(70), other = text(9, 5);
  Session s(loaded, kOptions);
  (void)s.feed(tokens);
  for (const int64_t to : {68, 50, 49, 20, 3, 0}) {
    s.rewind(to);
    EXPECT_EQ(s.position(), to);
    std::vector<text::TokenId> whole(tokens.begin(), tokens.begin() + to);
    ASSERT_TRUE(std::equal(whole.begin(), whole.end(), s.tokens().begin()));
    whole.insert(whole.end(), other.begin(), other.end());
    EXPECT_LT(off(s.feed(other), alone(loaded, whole)), kBound) << to;
    EXPECT_EQ(s.tokens(), whole);
    (void)s.become(tokens);
  }
  std::vector<text::TokenId> changed = tokens;
  changed[40] = (changed[40] + 1) % 59;
  EXPECT_LT(off(s.become(changed), alone(loaded, changed)), kBound);
  s.shift(2, 40);
  changed.erase(changed.begin() + 2, changed.begin() + 42);
  const text::TokenId next = 7;
  changed.push_back(next);
  EXPECT_LT(off(s.feed({&next, 1}), alone(loaded, changed)), kBound);
}

TEST_P(Hybrid, RejectedDraftsLeaveNothing) {
  const auto tokens = text(30), drafts = text(6, 11);
  Session s(loaded, kOptions);
  (void)s.feed(tokens);
  const auto rows = s.feed_all(drafts);
  const std::vector<float> all(rows.begin(), rows.end());
  std::vector<text::TokenId> whole = tokens;
  for (size_t i = 0; i < drafts.size(); ++i) {
    whole.push_back(drafts[i]);
    const auto vocab = static_cast<size_t>(s.vocabulary());
    EXPECT_LT(off(std::span(all).subspan(i * vocab, vocab), alone(loaded, whole)), kBound) << i;
  }
  for (const int64_t kept : {4, 2, 0}) {
    s.rewind(30 + kept);
    whole.assign(tokens.begin(), tokens.end());
    whole.insert(whole.end(), drafts.begin(), drafts.begin() + kept);
    whole.push_back(9);
    EXPECT_LT(off(s.feed({&whole.back(), 1}), alone(loaded, whole)), kBound) << kept;
    s.rewind(30 + kept);
  }
}

TEST_P(Hybrid, OutputsAreThoseWithoutDrafts) {
  GenerateOptions generate;
  generate.predict = 40;
  SamplerOptions sampling;
  sampling.temperature = 0;
  const auto prompt = text(25);
  const auto answer = [&](std::unique_ptr<Draft> draft) {
    Generator g(loaded, kOptions, sampling, generate, std::move(draft));
    return g.answer(prompt, true, [](std::string_view) {}, [] { return true; });
  };
  const auto want = answer(nullptr);
  EXPECT_EQ(answer(std::make_unique<LookUpDraft>()).text, want.text);
  const auto itself = answer(std::make_unique<ModelDraft>(loaded, kOptions));
  EXPECT_EQ(itself.text, want.text);
  EXPECT_GT(itself.accepted, 20);
}

// What follows a shift is what follows the tokens that are left.
TEST_P(Hybrid, ShiftedContextsAreComputedAgain) {
  GenerateOptions generate;
  generate.predict = 60;
  generate.shift = true;
  generate.keep = 4;
  SamplerOptions sampling;
  sampling.temperature = 0;
  SessionOptions options = kOptions;
  options.context = 48;
  Generator g(loaded, options, sampling, generate);
  (void)g.answer(text(30), true, [](std::string_view) {}, [] { return true; });
  std::vector<text::TokenId> left = g.tokens();
  left.resize(static_cast<size_t>(g.session().position()));
  left.push_back(5);
  EXPECT_LT(off(g.session().feed({&left.back(), 1}), alone(loaded, left)), kBound);
}

// Three slots for eight sequences, so that most of them lose theirs again and again; and padded steps.
TEST_P(Hybrid, SequencesTakeEachOthersSlots) {
  ManySession s(loaded, {.context = 1024, .chunk = 16, .page = 4, .exact = true},
                {.longest = 128, .sequences = 3, .kept = 5});
  std::vector<int> sequences;
  std::vector<std::vector<text::TokenId>> texts;
  for (int64_t i = 0; i < 8; ++i) {
    sequences.push_back(s.open());
    texts.push_back(text(7 + 5 * i, i));
    const ManySession::Part part{sequences.back(), texts.back()};
    EXPECT_LT(off(s.feed({&part, 1})[0], alone(loaded, texts.back())), kBound) << i;
  }
  for (int64_t round = 0; round < 6; ++round) {
    std::vector<ManySession::Part> parts;
    for (int64_t k = 0; k < 2 + round % 2; ++k) {
      const auto i = static_cast<size_t>((round * 3 + k * 2) % 8);
      texts[i].push_back(static_cast<text::TokenId>((round * 7 + k) % 59));
      parts.push_back({sequences[i], std::span(texts[i]).last(1)});
    }
    const auto rows = s.feed(parts);
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto i = static_cast<size_t>(std::ranges::find(sequences, parts[p].sequence) - sequences.begin());
      EXPECT_LT(off(rows[p], alone(loaded, texts[i])), kBound) << "round " << round << ", text " << i;
    }
  }
  // A sequence that begins anew begins with zeros.
  s.close(sequences[2]);
  const int again = s.open();
  const auto fresh = text(9, 31);
  const ManySession::Part part{again, fresh};
  EXPECT_LT(off(s.feed({&part, 1})[0], alone(loaded, fresh)), kBound);
}

TEST_P(Hybrid, SequencesAreSharedAndRewoundAtMarks) {
  ManySession s(loaded, {.context = 1024, .chunk = 16, .page = 4, .exact = true},
                {.longest = 128, .sequences = 4, .drafted = 8, .rows = 8});
  const int a = s.open(), b = s.open();
  const auto tokens = text(40), other = text(7, 3);
  const ManySession::Part first{a, tokens};
  (void)s.feed({&first, 1});
  EXPECT_EQ(s.shareable(a, 39), 32);  // the end of a chunk
  EXPECT_EQ(s.share(a, b, 39), 32);
  const ManySession::Part second{b, other};
  std::vector<text::TokenId> whole(tokens.begin(), tokens.begin() + 32);
  whole.insert(whole.end(), other.begin(), other.end());
  EXPECT_LT(off(s.feed({&second, 1})[0], alone(loaded, whole)), kBound);
  EXPECT_EQ(s.rewind(a, 20), 16);
  const ManySession::Part third{a, other};
  whole.assign(tokens.begin(), tokens.begin() + 16);
  whole.insert(whole.end(), other.begin(), other.end());
  EXPECT_LT(off(s.feed({&third, 1})[0], alone(loaded, whole)), kBound);
  // Drafts of two sequences in one call: some are kept, some are not.
  const auto drafts = text(5, 17);
  const text::TokenId one = 4;
  const std::vector<ManySession::Part> parts = {{a, drafts}, {b, {&one, 1}}};
  const auto rows = s.feed_apart(parts);
  ASSERT_EQ(rows.size(), 6U);
  std::vector<text::TokenId> mine = s.tokens(a);
  EXPECT_LT(off(rows[4].whole(), alone(loaded, mine)), kBound);
  EXPECT_LT(off(rows[5].whole(), alone(loaded, s.tokens(b))), kBound);
  mine.resize(mine.size() - 3);
  s.settle(a, std::ssize(mine));
  EXPECT_EQ(s.tokens(a), mine);
  mine.push_back(8);
  const ManySession::Part last{a, std::span(mine).last(1)};
  EXPECT_LT(off(s.feed({&last, 1})[0], alone(loaded, mine)), kBound);
}

SequenceOrder order_of(std::vector<text::TokenId> prompt) {
  SequenceOrder order;
  order.prompt = std::move(prompt);
  order.sampling.temperature = 0;
  order.generate.predict = 12;
  return order;
}

TEST_P(Hybrid, SequencesThatComeAndGoAreThoseGeneratedAlone) {
  const auto written = [&](const SequenceOrder& order) {
    Generator g(loaded, kOptions, order.sampling, order.generate);
    return g.answer(order.prompt, true, [](std::string_view) {}, [] { return true; }).text;
  };
  for (const bool drafts : {false, true}) {
    ManyLimits limits{.longest = 128, .sequences = 3, .kept = 3};
    const DraftOptions draft{.look_up = drafts, .most = 4};
    if (drafts) limits = with_drafts(draft, limits);
    const SessionOptions session{.context = 512, .chunk = 16, .page = 4, .exact = true};
    SequenceBatch batch(loaded, session, limits, 3);
    batch.draft_with(make_draft(draft, session, limits));
    std::vector<SequenceOrder> orders;
    const auto common = text(30);
    for (int64_t i = 0; i < 9; ++i) {
      std::vector<text::TokenId> prompt = i % 3 == 2 ? text(20 + i, i) : common;
      if (i % 3 != 2) prompt.insert(prompt.end(), {text::TokenId(i % 3), text::TokenId(i), 3});
      if (i == 8) prompt = orders[0].prompt;
      orders.push_back(order_of(prompt));
    }
    std::vector<ManyAnswer> answers(orders.size());
    for (size_t i = 0; i < orders.size(); ++i) {
      SequenceOrder order = orders[i];
      order.done = [&, i](const ManyAnswer& answer) { answers[i] = answer; };
      order.generate.draft = 4;
      batch.add(std::move(order));
      (void)batch.step();
    }
    while (batch.step()) {
    }
    int64_t shared = 0;
    for (size_t i = 0; i < orders.size(); ++i) {
      EXPECT_EQ(answers[i].text, written(orders[i])) << i;
      shared += answers[i].shared;
    }
    EXPECT_GT(shared, 30);  // marks at the end of what prompts have in common
  }
}

INSTANTIATE_TEST_SUITE_P(All, Hybrid,
                         testing::Values("qwen3_5", "granite_h", "lfm2", "mamba2", "nemotron_h", "qwen3_next", "jamba",
                                         "nemotron_h_moe", "kimi_linear", "olmo_hybrid"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model::infer
