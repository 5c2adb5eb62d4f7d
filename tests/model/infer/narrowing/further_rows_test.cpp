// Needs: cpu. Samplers decide rows whose logits stay on the device as they decide whole rows: flat and peaked ones, with
// equal logits, with tokens that are not allowed and with changed logits, several of them together. Hardly any row is
// fetched. Tallies are within their bounds, and masks go to the device once.
#include "model/infer/narrowing/further_rows.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "tests/model/infer/narrowing/narrowed_rows.h"

namespace lumen::model {
namespace {

using Rows = std::vector<std::vector<float>>;

struct Decided {
  std::vector<std::optional<TokenId>> tokens;  // nullopt: only the whole row decides
  int passes = 0;
};

// Decides rows together, as steps do.
Decided decide(NarrowingProgram& program, const Rows& rows, std::vector<Sampler>& samplers, TokenFilter* filter) {
  const auto vocabulary = std::ssize(rows[0]);
  std::vector<Asked> asked;
  for (const Sampler& s : samplers) asked.push_back(s.asked(vocabulary));
  std::vector<std::optional<Narrowed>> known = program.run(rows, asked);
  FurtherRows& further = program.further();
  std::vector<TokenSet> allowed(rows.size());
  if (filter) {
    std::vector<RowSource::Look> looks;
    for (size_t r = 0; r < rows.size(); ++r) {
      allowed[r] = samplers[r].allowed(*filter);
      looks.push_back({int64_t(r), &allowed[r], asked[r]});
    }
    known = further.look(program.logits(), looks);
  }
  Decided out;
  out.tokens.resize(rows.size());
  std::vector<std::optional<DistantRow>> distant(rows.size());
  for (size_t r = 0; r < rows.size(); ++r)
    if (known[r]) distant[r].emplace(*known[r]);
  for (;; ++out.passes) {
    std::vector<size_t> looking, counting;
    std::vector<RowSource::Look> looks;
    std::vector<RowSource::Count> counts;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (!distant[r] || out.tokens[r]) continue;
      try {
        out.tokens[r] = samplers[r].decide(*distant[r], filter);
      } catch (const Undecided&) {
        distant[r].reset();
        continue;
      }
      if (out.tokens[r]) continue;
      const DistantRow::Need& n = distant[r]->need();
      if (n.kind == DistantRow::Need::Kind::tallies) {
        counting.push_back(r);
        counts.push_back({int64_t(r), &n.allowed, n.temperature, n.best, n.center, n.edges});
      } else {
        looking.push_back(r);
        looks.push_back({int64_t(r), &n.allowed, n.asked, n.range});
      }
    }
    if (looks.empty() && counts.empty()) return out;
    const auto learn = [&](size_t r, const auto& answer) {
      try {
        distant[r]->learn(answer);
      } catch (const Undecided&) {
        distant[r].reset();
      }
    };
    if (!counts.empty()) {
      const std::vector<Tallies> seen = further.count(program.logits(), counts);
      for (size_t i = 0; i < counting.size(); ++i) learn(counting[i], seen[i]);
    }
    if (!looks.empty()) {
      const std::vector<std::optional<Narrowed>> seen = further.look(program.logits(), looks);
      for (size_t i = 0; i < looking.size(); ++i) learn(looking[i], seen[i]);
    }
  }
}

// Flat and peaked rows; with `ties` all logits are multiples of an eighth.
Rows flat_rows(std::mt19937& random, int64_t vocabulary, bool ties) {
  Rows rows;
  for (int64_t r = 0; r < kNarrowedRows; ++r) {
    std::normal_distribution<float> normal(0, std::array{0.7F, 2.0F, 3.5F}[random() % 3]);
    auto& row = rows.emplace_back();
    for (int64_t i = 0; i < vocabulary; ++i) {
      const float x = normal(random);
      row.push_back(ties ? std::round(x * 8) / 8 : x);
    }
    if (random() % 4 == 0) row[random() % row.size()] += 9;
  }
  return rows;
}

struct Kind {
  const char* name;
  SamplerOptions options;
  double most = 0.02;  // share of whole rows
};

std::vector<Kind> kinds() {
  const SamplerOptions none{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
  const auto with = [&](auto set) {
    SamplerOptions o = none;
    set(o);
    return o;
  };
  return {
      {"top-p", with([](auto& o) { o.top_p = 0.9; })},
      {"top-p, hot", with([](auto& o) { o.top_p = 0.6, o.temperature = 1.7; })},
      {"top-p, cold", with([](auto& o) { o.top_p = 0.95, o.temperature = 0.4; })},
      {"min-p", with([](auto& o) { o.min_p = 0.02; })},
      {"top-p and min-p", with([](auto& o) { o.top_p = 0.8, o.min_p = 0.01; })},
      {"top-k", with([](auto& o) { o.top_k = 700; })},
      {"top-k and top-p", with([](auto& o) { o.top_k = 600, o.top_p = 0.7; })},
      {"sigma", with([](auto& o) { o.top_n_sigma = 2; })},
      {"typical", with([](auto& o) { o.typical_p = 0.5; })},
      {"typical, low", with([](auto& o) { o.typical_p = 0.1; })},
      {"typical and top-p", with([](auto& o) { o.typical_p = 0.7, o.top_p = 0.8, o.min_p = 0.01; }), 0.1},
      {"mirostat 1", with([](auto& o) { o.mirostat = 1; })},
      {"mirostat 2", with([](auto& o) { o.mirostat = 2, o.mirostat_entropy = 9; })},
      {"xtc", with([](auto& o) { o.xtc_probability = 1, o.xtc_threshold = 0.05, o.top_p = 0.9; })},
      {"penalties", with([](auto& o) { o.top_p = 0.9, o.repeat_penalty = 1.2, o.presence_penalty = 0.5; })},
      {"bias", with([](auto& o) {
         for (TokenId id = 0; id < 300; ++id) o.bias.emplace_back(3 * id, id % 7 == 0 ? 4 : -2);
         o.top_p = 0.9;
       })},
      {"everything", with([](auto& o) {
         o.top_n_sigma = 4, o.top_k = 900, o.top_p = 0.95, o.min_p = 0.001, o.xtc_probability = 0.5;
       })},
  };
}

// Every kind of options, on rows of each size; with or without a grammar, and tokens that are never drawn.
void expect_whole_rows_tokens(int64_t vocabulary, bool ties, bool filtered, int rounds, double more) {
  std::mt19937 random(uint32_t(vocabulary) + (ties ? 1 : 0));
  NarrowingProgram program(vocabulary, Narrowing::Rows::many);
  int all = 0, all_fetched = 0;
  std::vector<Kind> each = kinds();
  for (Kind& kind : each) {
    int drawn = 0, fetched = 0, passes = 0;
    for (int round = 0; round < rounds; ++round) {
      kind.options.seed = random();
      kind.options.forbidden = {1, TokenId(vocabulary - 1)};
      std::vector<Sampler> whole(kNarrowedRows, Sampler(kind.options)), distant = whole;
      EveryFew filter(vocabulary, 1 + random() % 3);
      TokenFilter* const asks = filtered ? &filter : nullptr;
      for (int step = 0; step < 3; ++step) {
        const Rows rows = flat_rows(random, vocabulary, ties);
        const Decided decided = decide(program, rows, distant, asks);
        passes += decided.passes;
        for (int64_t r = 0; r < kNarrowedRows; ++r) {
          const TokenId want = whole[r].pick(std::span<const float>(rows[r]), asks);
          ++drawn;
          if (decided.tokens[r]) {
            ASSERT_EQ(*decided.tokens[r], want) << kind.name << " of " << vocabulary << ", round " << round;
          } else {
            ++fetched;
            ASSERT_EQ(distant[r].pick(std::span<const float>(rows[r]), asks), want);
          }
          whole[r].accept(want);
          distant[r].accept(want);
        }
      }
    }
    all += drawn;
    all_fetched += fetched;
    EXPECT_LE(fetched, std::max(1.0, drawn * kind.most * more)) << kind.name << " of " << vocabulary;
    if (std::getenv("LUMEN_SHOW"))
      printf("%6ld %-18s %4d of %4d fetched, %.1f passes\n", long(vocabulary), kind.name, fetched, drawn,
             double(passes) / (3 * rounds));
  }
  EXPECT_LE(all_fetched, all * 0.02 * more);
}

TEST(FurtherRows, DrawWhatWholeRowsDraw) {
  expect_whole_rows_tokens(1000, false, false, 6, 1);
  expect_whole_rows_tokens(32000, false, false, 3, 1);
}

TEST(FurtherRows, DrawWhatWholeRowsDrawOfLargeVocabularies) {
  expect_whole_rows_tokens(151936, false, false, 1, 1);
}

TEST(FurtherRows, DrawWhatWholeRowsDrawOfGrammars) {
  expect_whole_rows_tokens(5003, false, true, 3, 1);
}

TEST(FurtherRows, TellEqualLogitsApart) {
  expect_whole_rows_tokens(5003, true, false, 3, 5);
}

}  // namespace
}  // namespace lumen::model
