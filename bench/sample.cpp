// How long the choice of a token takes, in microseconds (median, 95th and 99th percentile of 301), by vocabulary and by
// what is asked for. Logits are normally distributed: flatter than a model's, or so that a few tokens have most of the
// weight. usage: bench_sample [VOCABULARY ..]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "model/infer/sample/sampler.h"

int main(int argc, char** argv) {
  using namespace lumen::model::infer;
  using Clock = std::chrono::steady_clock;
  struct Case {
    const char* name;
    std::function<void(SamplerOptions&)> set;
  };
  const std::vector<Case> cases{
      {"as without options", [](SamplerOptions&) {}},
      {"greedy", [](SamplerOptions& o) { o.temperature = 0; }},
      {"penalties", [](SamplerOptions& o) { o.repeat_penalty = 1.1, o.presence_penalty = 0.1; }},
      {"--dry-multiplier 1", [](SamplerOptions& o) { o.dry_multiplier = 1; }},
      {"--top-k 0", [](SamplerOptions& o) { o.top_k = 0; }},
      {"top-p 0.95", [](SamplerOptions& o) { o.top_k = 0, o.min_p = 0; }},
      {"top-p 0.5", [](SamplerOptions& o) { o.top_k = 0, o.min_p = 0, o.top_p = 0.5; }},
      {"--typical 0.9", [](SamplerOptions& o) { o.top_k = 0, o.min_p = 0, o.top_p = 1, o.typical_p = 0.9; }},
      {"--top-k 1000", [](SamplerOptions& o) { o.top_k = 1000, o.min_p = 0, o.top_p = 1; }},
      {"--top-k 10000", [](SamplerOptions& o) { o.top_k = 10000, o.min_p = 0, o.top_p = 1; }},
      {"--top-n-sigma 1", [](SamplerOptions& o) { o.top_k = 0, o.min_p = 0, o.top_p = 1, o.top_n_sigma = 1; }},
      {"no cuts", [](SamplerOptions& o) { o.top_k = 0, o.top_p = 1, o.min_p = 0; }},
      {"--mirostat 2", [](SamplerOptions& o) { o.mirostat = 2; }},
  };
  std::vector<size_t> vocabularies;
  for (int i = 1; i < argc; ++i) vocabularies.push_back(std::stoul(argv[i]));
  if (vocabularies.empty()) vocabularies = {32000, 151936};
  for (const size_t vocabulary : vocabularies) {
    struct Row {
      const char* name;
      float deviation, best;
    };
    for (const Row& row : {Row{"flat", 2.5F, 0}, Row{"peaked", 2, 20}, Row{"untrained", 0.3F, 0}}) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal(0, row.deviation);
      std::vector<float> logits(vocabulary);
      for (float& x : logits) x = normal(random);
      for (int i = 0; row.best > 0 && i < 30; ++i) logits[random() % vocabulary] = row.best - 0.4F * float(i);
      for (const Case& c : cases) {
        SamplerOptions options;
        c.set(options);
        Sampler sampler(options);
        std::vector<double> times;
        for (int i = 0; i < 301; ++i) {
          const auto start = Clock::now();
          sampler.accept(sampler.pick(logits));
          times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
        }
        std::sort(times.begin(), times.end());
        const auto percent = [&](size_t p) { return times[times.size() * p / 100]; };
        fmt::print("{:>8} {:<11} {:<20} {:8.1f} {:8.1f} {:8.1f}\n", vocabulary, row.name, c.name, percent(50),
                   percent(95), percent(99));
      }
    }
  }
  return 0;
}
