// Needs: cpu. Rows narrowed by a compiled step against the rows themselves: the largest in order, sums, values asked
// for; samplers that see either draw the same tokens, whatever is asked of them; so do sequences, alone and together.
// Rows that are narrowed to the tokens of a grammar draw what full rows with that grammar draw.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/generate_many.h"
#include "model/infer/sample/sampler.h"
#include "tests/model/infer/narrowing/narrowed_rows.h"

namespace lumen::model::infer {
namespace {

TEST(Narrowing, WhatComesOutIsTheBeginningOfTheOrder) {
  std::mt19937 random(1);
  using Rows = Narrowing::Rows;
  std::vector<std::pair<int64_t, Rows>> cases{{100000, Rows::one}};
  for (const int64_t vocabulary : {8, 9, 65, 1000, 4099, 33000})
    for (const Rows rows : {Rows::one, Rows::many}) cases.emplace_back(vocabulary, rows);
  for (const auto& [vocabulary, kind] : cases) {
    NarrowingProgram program(vocabulary, kind);
    for (int round = 0; round < (vocabulary > 50000 ? 2 : 6); ++round) {
      std::vector<std::vector<float>> rows;
      std::vector<Asked> asked(kNarrowedRows);
      for (int64_t r = 0; r < kNarrowedRows; ++r) {
        rows.push_back(logits_of(random, vocabulary));
        for (text::TokenId id = r; id < std::min<int64_t>(vocabulary, 90); id += 3) asked[r].ids.push_back(id);
        asked[r].temperature = r == 0 ? 1 : r == 1 ? 0.5 : 2;
      }
      const auto narrowed = program.run(rows, asked);
      for (int64_t r = 0; r < kNarrowedRows; ++r) {
        ASSERT_TRUE(narrowed[r].has_value());
        const Narrowed& n = *narrowed[r];
        std::vector<Candidate> order;
        for (int64_t i = 0; i < vocabulary; ++i) order.push_back({text::TokenId(i), rows[r][i]});
        std::sort(order.begin(), order.end(), is_better);
        ASSERT_GE(std::ssize(n.best), std::min<int64_t>(vocabulary > 4096 ? 33 : 1, vocabulary));
        for (size_t i = 0; i < n.best.size(); ++i) {
          ASSERT_EQ(n.best[i].id, order[i].id) << vocabulary << " rank " << i;
          ASSERT_EQ(n.best[i].logit, order[i].logit);
        }
        double sum = 0;
        for (const Candidate& c : order) sum += std::exp((c.logit - order[0].logit) / asked[r].temperature);
        EXPECT_LT(std::fabs(n.sum / sum - 1), Narrowed::kSumError / 10);
        for (const text::TokenId id : asked[r].ids) ASSERT_EQ(n.at(id), double{rows[r][id]});
      }
    }
  }
}

TEST(Narrowing, NumbersThatAreNoneGoToWhoLooksAtTheWholeRow) {
  for (const Narrowing::Rows kind : {Narrowing::Rows::one, Narrowing::Rows::many}) {
    NarrowingProgram program(5000, kind);
    std::vector<std::vector<float>> rows(kNarrowedRows, std::vector<float>(5000, 1));
    rows[0][17] = std::nanf("");
    rows[1][4999] = std::numeric_limits<float>::infinity();
    rows[2][4] = -std::numeric_limits<float>::infinity();
    for (const auto& n : program.run(rows, std::vector<Asked>(kNarrowedRows))) EXPECT_FALSE(n.has_value());
  }
}

TEST(Narrowing, SamplersDrawTheSameTokens) {
  std::mt19937 random(2);
  int fetched = 0, drawn = 0;
  for (const int64_t vocabulary : {65, 5003, 32000}) {
    NarrowingProgram one(vocabulary, Narrowing::Rows::one), many(vocabulary, Narrowing::Rows::many);
    for (int round = 0; round < (vocabulary > 30000 ? 40 : 120); ++round) {
      NarrowingProgram& program = round % 2 == 0 ? one : many;
      const SamplerOptions options = drawn_options(random, vocabulary);
      std::vector<Sampler> whole(kNarrowedRows, Sampler(options)), narrow = whole;
      EveryFew filter(vocabulary, 2 + random() % 12);
      TokenFilter* const asks = random() % 3 == 0 ? &filter : nullptr;
      for (int step = 0; step < 4; ++step) {
        std::vector<std::vector<float>> rows;
        std::vector<Asked> asked;
        for (int64_t r = 0; r < kNarrowedRows; ++r) {
          rows.push_back(logits_of(random, vocabulary));
          asked.push_back(narrow[r].asked(vocabulary));
        }
        const auto narrowed = program.run(rows, asked);
        for (int64_t r = 0; r < kNarrowedRows; ++r) {
          ASSERT_TRUE(narrowed[r].has_value());
          const LogitRow row(*narrowed[r], [&, r] {
            ++fetched;
            return std::span<const float>(rows[r]);
          });
          ++drawn;
          const text::TokenId want = whole[r].pick(std::span<const float>(rows[r]), asks),
                              got = narrow[r].pick(row, asks);
          ASSERT_EQ(got, want) << "round " << round << " step " << step << " of " << vocabulary;
          if (want < 0) continue;
          // Sometimes what was drawn, sometimes what stands in front of everything.
          const text::TokenId next = random() % 2 == 0 ? want : narrowed[r]->best[0].id;
          whole[r].accept(next);
          narrow[r].accept(next);
        }
      }
    }
  }
  EXPECT_LT(fetched, drawn * 2 / 3);
}

// Where filters leave little of the groups in front, another group may win: then the whole row decides.
TEST(Narrowing, GroupsBeyondTheFrontMayWin) {
  constexpr int64_t kVocabulary = 32000;
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 1);
  NarrowingProgram program(kVocabulary, Narrowing::Rows::many);
  SamplerOptions options{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
  int fetched = 0, others = 0;
  for (int round = 0; round < 8; ++round) {
    options.seed = uint32_t(round);
    options.forbidden.clear();
    const std::vector<std::vector<float>> rows(kNarrowedRows, [&] {
      std::vector<float> logits(kVocabulary);
      for (float& x : logits) x = normal(random);
      return logits;
    }());
    const std::vector<Asked> asked(kNarrowedRows, Sampler(options).asked(kVocabulary));
    const Narrowed narrowed = *program.run(rows, asked)[0];
    ASSERT_EQ(narrowed.front.size(), 4U);
    ASSERT_TRUE(narrowed.has_others);
    const LogitRow row(narrowed, [&] {
      ++fetched;
      return std::span<const float>(rows[0]);
    });
    // All but one token of each group in front, or none of them, and of few groups or all.
    for (size_t g = 0; g < (round % 2 == 0 ? 4U : 1U); ++g)
      for (int64_t i = round % 4 < 2 ? 1 : 0; i < Race::kGroup; ++i)
        options.forbidden.push_back(text::TokenId(narrowed.front[g].number * Race::kGroup + i));
    Sampler narrow(options), whole(options);
    const text::TokenId want = whole.pick(std::span<const float>(rows[0]));
    EXPECT_EQ(narrow.pick(row), want) << round;
    others += std::ranges::none_of(narrowed.front, [&](const auto& g) { return g.number == want / Race::kGroup; });
  }
  EXPECT_GE(fetched, 4);
  EXPECT_LE(fetched, 6);
  EXPECT_GE(others, 3);
}

// What most sequences are drawn with is decided by the candidates of a large vocabulary.
TEST(Narrowing, UsualOptionsFetchNoRow) {
  std::mt19937 random(3);
  NarrowingProgram program(32000, Narrowing::Rows::one);
  for (int kind = 0; kind < 4; ++kind) {
    SamplerOptions options;
    if (kind == 1) options.temperature = 0;
    if (kind == 2) options.repeat_penalty = 1.1;
    if (kind == 3) options.bias = {{5, 3.0}, {70, -100.0}};
    Sampler sampler(options);
    for (int step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> rows(kNarrowedRows, logits_of(random, 32000));
      const auto narrowed = program.run(rows, std::vector<Asked>(kNarrowedRows, sampler.asked(32000)));
      int fetched = 0;
      const LogitRow row(*narrowed[0], [&] {
        ++fetched;
        return std::span<const float>(rows[0]);
      });
      sampler.accept(sampler.pick(row));
      EXPECT_EQ(fetched, 0) << kind;
    }
  }
}

// Grammars allow one token or most, barred tokens and changed logits come with them, and hardly any row is fetched.
TEST(Narrowing, MaskedRowsDrawTheSameTokens) {
  std::mt19937 random(7);
  int fetched = 0, drawn = 0, none = 0;
  for (const int64_t vocabulary : {65, 5003, 32000}) {
    NarrowingProgram one(vocabulary, Narrowing::Rows::one), many(vocabulary, Narrowing::Rows::many);
    for (int round = 0; round < 80; ++round) {
      NarrowingProgram& program = round % 2 == 0 ? one : many;
      const SamplerOptions options = drawn_options(random, vocabulary);
      EveryFew filter(vocabulary, 1U << random() % 17);
      std::vector<Sampler> whole(kNarrowedRows, Sampler(options)), narrow = whole;
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> rows;
        std::vector<Asked> asked;
        std::vector<TokenSet> allowed;
        for (int64_t r = 0; r < kNarrowedRows; ++r) {
          rows.push_back(logits_of(random, vocabulary));
          asked.push_back(narrow[r].asked(vocabulary));
          allowed.push_back(narrow[r].allowed(filter));
        }
        (void)program.run(rows, asked);
        // The rows in another order, and one of them left out now and then.
        std::vector<RowSource::Look> which{{2, &allowed[2], asked[2]}, {0, &allowed[0], asked[0]}};
        if (step > 0) which.push_back({1, &allowed[1], asked[1]});
        const auto masked = program.further().look(program.logits(), which);
        for (size_t i = 0; i < which.size(); ++i) {
          const int64_t r = which[i].row;
          const text::TokenId want = whole[r].pick(std::span<const float>(rows[r]), &filter);
          ++drawn;
          if (!masked[i]) {
            ASSERT_EQ(allowed[r].count(), 0U);
            ASSERT_EQ(want, -1);
            ++none;
            continue;
          }
          const LogitRow row(*masked[i], [&, r] {
            ++fetched;
            return std::span<const float>(rows[r]);
          });
          ASSERT_EQ(narrow[r].pick(row, &filter), want) << vocabulary << " round " << round << " row " << r;
          if (want < 0) continue;
          whole[r].accept(want);
          narrow[r].accept(want);
        }
      }
    }
  }
  EXPECT_LT(fetched, drawn / 4);
  EXPECT_LT(none, drawn / 8);
}

// A grammar without top-k, and one whose tokens are far from the best ones.
TEST(Narrowing, GrammarsFetchNoRow) {
  constexpr int64_t kVocabulary = 32000;
  std::mt19937 random(8);
  NarrowingProgram program(kVocabulary, Narrowing::Rows::many);
  for (int kind = 0; kind < 3; ++kind) {
    SamplerOptions options{.temperature = 1, .top_k = kind == 1 ? 40 : 0, .top_p = 1, .min_p = 0};
    if (kind == 2) options.repeat_penalty = 1.2;
    Sampler sampler(options), whole(options);
    EveryFew filter(kVocabulary, kind == 1 ? 16384 : 3);
    for (int step = 0; step < 10; ++step) {
      const std::vector<std::vector<float>> rows(kNarrowedRows, logits_of(random, kVocabulary));
      const std::vector<Asked> asked(kNarrowedRows, sampler.asked(kVocabulary));
      const auto narrowed = program.run(rows, asked);
      const TokenSet allowed = sampler.allowed(filter);
      const RowSource::Look which{1, &allowed, asked[1]};
      const auto masked = program.further().look(program.logits(), {&which, 1});
      const LogitRow row(*masked[0], nullptr);
      const std::optional<text::TokenId> picked = sampler.pick_if_decided(row, &filter);
      ASSERT_TRUE(picked.has_value()) << kind << " step " << step;
      EXPECT_EQ(*picked, whole.pick(std::span<const float>(rows[1]), &filter));
      sampler.accept(*picked);
      whole.accept(*picked);
    }
  }
}

arch::Model narrowing_model() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

TEST(Narrowing, OutputsAreTheSame) {
  const arch::Model m = narrowing_model();
  const LoadedModel loaded(engine(), m);
  const std::vector<text::TokenId> prompt = m.tokenizer->encode("abcab");
  std::mt19937 random(4);
  for (int round = 0; round < 12; ++round) {
    SamplerOptions sampling = drawn_options(random, 8);
    GenerateOptions generate{.predict = 10};
    if (round % 3 == 0) generate.grammar = "root ::= [a-e]+ \" \" [f-j]+";
    std::string text[2];
    std::vector<ManyAnswer> many[2];
    for (const bool narrow : {false, true}) {
      SessionOptions session{.context = 64, .narrow = narrow ? Narrow::always : Narrow::never};
      Generator g(loaded, session, sampling, generate);
      text[narrow] = g.answer(prompt, true, [](std::string_view) {}, [] { return true; }).text;
      ManyOptions options;
      options.session = session;
      options.sampling = sampling;
      options.generate = generate;
      options.parallel = 2;
      std::vector<ManyRequest> requests;
      for (const char* p : {"abcab", "j", "hhh a"}) requests.push_back({m.tokenizer->encode(p), sampling.seed});
      many[narrow] = answer_all(loaded, options, requests, nullptr, [] { return true; }, nullptr);
    }
    EXPECT_EQ(text[0], text[1]) << round;
    EXPECT_EQ(many[0][0].text, text[0]) << round;
    for (size_t i = 0; i < many[0].size(); ++i) EXPECT_EQ(many[0][i].text, many[1][i].text) << round << " text " << i;
  }
}

}  // namespace
}  // namespace lumen::model::infer
