// Needs: cpu. Samplers decide rows whose logits stay on the device as they decide whole rows: flat and peaked ones,
// with equal logits, with tokens that are not allowed and with changed logits, several of them together. Hardly any row
// is fetched. Tallies are within their bounds, and masks go to the device once.
#include "model/infer/narrowing/further_rows.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "tests/model/infer/narrowing/narrowed_rows.h"

namespace lumen::model::infer {
namespace {

using Rows = std::vector<std::vector<float>>;

struct Decided {
  std::vector<std::optional<text::TokenId>> tokens;  // nullopt: only the whole row decides
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
  double most = 0.02, of_equal = 0.15;  // share of whole rows; the same where many logits are equal
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
      {"top-k and top-p", with([](auto& o) { o.top_k = 600, o.top_p = 0.7; }), 0.02, 0.8},
      {"sigma", with([](auto& o) { o.top_n_sigma = 2; })},
      {"typical", with([](auto& o) { o.typical_p = 0.5; }), 0.02, 0.4},
      {"typical, low", with([](auto& o) { o.typical_p = 0.1; }), 0.02, 0.6},
      {"typical and top-p", with([](auto& o) { o.typical_p = 0.7, o.top_p = 0.8, o.min_p = 0.01; }), 0.1, 0.5},
      {"mirostat 1", with([](auto& o) { o.mirostat = 1; })},
      {"mirostat 2", with([](auto& o) { o.mirostat = 2, o.mirostat_entropy = 9; })},
      {"xtc", with([](auto& o) { o.xtc_probability = 1, o.xtc_threshold = 0.05, o.top_p = 0.9; })},
      {"penalties", with([](auto& o) { o.top_p = 0.9, o.repeat_penalty = 1.2, o.presence_penalty = 0.5; })},
      {"bias", with([](auto& o) {
         for (text::TokenId id = 0; id < 300; ++id) o.bias.emplace_back(3 * id, id % 7 == 0 ? 4 : -2);
         o.top_p = 0.9;
       }),
       0.02, 0.3},
      {"everything", with([](auto& o) {
         o.top_n_sigma = 4, o.top_k = 900, o.top_p = 0.95, o.min_p = 0.001, o.xtc_probability = 0.5;
       }),
       0.02, 0.9},
  };
}

// Every kind of options, on rows of each size; with or without a grammar, and tokens that are never drawn.
void expect_whole_rows_tokens(int64_t vocabulary, bool ties, bool filtered, int rounds) {
  std::mt19937 random(uint32_t(vocabulary) + (ties ? 1 : 0));
  NarrowingProgram program(vocabulary, Narrowing::Rows::many);
  int all = 0, all_fetched = 0;
  std::vector<Kind> each = kinds();
  for (Kind& kind : each) {
    // For some sizes a reduction has fewer than the hundred best tokens.
    if (kind.options.mirostat == 1 && vocabulary > 4000 && vocabulary < 20000) continue;
    int drawn = 0, fetched = 0, passes = 0;
    for (int round = 0; round < rounds; ++round) {
      kind.options.seed = random();
      kind.options.forbidden = {1, text::TokenId(vocabulary - 1)};
      std::vector<Sampler> whole(kNarrowedRows, Sampler(kind.options)), distant = whole;
      EveryFew filter(vocabulary, 1 + random() % 3);
      TokenFilter* const asks = filtered ? &filter : nullptr;
      for (int step = 0; step < 3; ++step) {
        const Rows rows = flat_rows(random, vocabulary, ties);
        const Decided decided = decide(program, rows, distant, asks);
        passes += decided.passes;
        for (int64_t r = 0; r < kNarrowedRows; ++r) {
          const text::TokenId want = whole[r].pick(std::span<const float>(rows[r]), asks);
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
    EXPECT_LE(fetched, std::max(1.0, drawn * (ties ? kind.of_equal : kind.most))) << kind.name << " of " << vocabulary;
    EXPECT_LE(passes, 3 * rounds * (ties ? 10 : 8)) << kind.name << " of " << vocabulary;
    if (std::getenv("LUMEN_SHOW"))
      printf("%6ld %-18s %4d of %4d fetched, %.1f passes\n", long(vocabulary), kind.name, fetched, drawn,
             double(passes) / (3 * rounds));
  }
  EXPECT_LE(all_fetched, all * (ties ? 0.25 : 0.02));
}

TEST(FurtherRows, DrawWhatWholeRowsDraw) {
  expect_whole_rows_tokens(1000, false, false, 6);
  expect_whole_rows_tokens(32000, false, false, 3);
}

TEST(FurtherRows, DrawWhatWholeRowsDrawOfLargeVocabularies) {
  expect_whole_rows_tokens(151936, false, false, 1);
}

TEST(FurtherRows, DrawWhatWholeRowsDrawOfGrammars) {
  expect_whole_rows_tokens(5003, false, true, 3);
}

TEST(FurtherRows, TellEqualLogitsApart) {
  expect_whole_rows_tokens(5003, true, false, 3);
}

// Counts are exact, sums within their bounds, for any edges; tokens that are not allowed do not count.
TEST(FurtherRows, TalliesAreWithinTheirBounds) {
  std::mt19937 random(3);
  for (const int64_t vocabulary : {9, 1000, 40000}) {
    NarrowingProgram program(vocabulary, Narrowing::Rows::many);
    const Rows rows = flat_rows(random, vocabulary, true);
    (void)program.run(rows, std::vector<Asked>(kNarrowedRows));
    EveryFew filter(vocabulary, 3);
    std::vector<Candidate> order;
    for (int64_t id = 0; id < vocabulary; ++id)
      if (filter.allows(text::TokenId(id))) order.push_back({text::TokenId(id), rows[1][id]});
    std::sort(order.begin(), order.end(), is_better);
    std::vector<Candidate> edges;
    for (int64_t i = 0; i < RowSource::kMostEdges; ++i) {
      edges.push_back(order[random() % order.size()]);
      if (i % 3 == 0) edges.back().id = kEveryId;
      if (i % 3 == 1) edges.back().logit = float(edges.back().logit + 0.01);
    }
    const RowSource::Count what{1, &filter.all(), 0.7, float(order[0].logit), -1, edges};
    const Tallies tallies = program.further().count(program.logits(), {&what, 1}).at(0);
    const auto expect = [&](const Tally& got, const Candidate& edge) {
      double count = 0, weight = 0, moment = 0, magnitude = 0;
      for (const Candidate& c : order) {
        const double w = std::exp((c.logit - order[0].logit) / 0.7);
        magnitude += w * std::fabs(c.logit + 1);
        if (is_better(edge, c)) continue;
        count += 1;
        weight += w;
        moment += w * (c.logit + 1);
      }
      EXPECT_EQ(got.count, count) << vocabulary;
      EXPECT_NEAR(got.weight, weight, weight * Tally::kError / 4);
      EXPECT_NEAR(got.moment, moment, magnitude * Tally::kError / 4);
      EXPECT_NEAR(tallies.magnitude, magnitude, magnitude * Tally::kError / 4);
    };
    for (size_t i = 0; i < edges.size(); ++i) expect(tallies.of_edges[i], edges[i]);
    expect(tallies.all, order.back());
    double sum = 0, squares = 0;
    for (const Candidate& c : order) sum += c.logit + 1, squares += (c.logit + 1) * (c.logit + 1);
    EXPECT_NEAR(tallies.squares, squares, squares * Tally::kError / 4);
    EXPECT_NEAR(tallies.sum, sum, std::sqrt(squares * double(order.size())) * Tally::kError / 4);
  }
}

TEST(FurtherRows, MasksOnTheDeviceStayThere) {
  constexpr int64_t kVocabulary = 5003;
  std::mt19937 random(4);
  NarrowingProgram program(kVocabulary, Narrowing::Rows::many);
  (void)program.run(flat_rows(random, kVocabulary, false), std::vector<Asked>(kNarrowedRows));
  FurtherRows& further = program.further();
  EveryFew two(kVocabulary, 2), three(kVocabulary, 3);
  const auto count_of = [&](int64_t row, TokenFilter& filter) {
    const RowSource::Count what{row, &filter.all(), 1, 0, 0, {}};
    EXPECT_EQ(further.count(program.logits(), {&what, 1}).at(0).all.count, double(filter.all().count()));
    const RowSource::Look look{row, &filter.all(), {}};
    const std::vector<std::optional<Narrowed>> seen = further.look(program.logits(), {&look, 1});
    for (const Candidate& c : seen.at(0)->best) EXPECT_TRUE(filter.allows(c.id));
    return further.uploaded_masks();
  };
  const int64_t first = count_of(0, two);
  EXPECT_EQ(count_of(0, two), first);
  EXPECT_EQ(count_of(2, three), first + 1);
  EXPECT_EQ(count_of(0, two), first + 1);
  EXPECT_EQ(count_of(0, three), first + 2);
  EXPECT_EQ(count_of(2, three), first + 2);
}

}  // namespace
}  // namespace lumen::model::infer
