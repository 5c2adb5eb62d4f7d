// How long the choice of a token takes, in microseconds, by vocabulary and by what is asked for: logits as they come
// from a normal distribution, which is flatter than a model's.  usage: bench_sample [VOCABULARY ..]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "model/infer/sample/sampler.h"

int main(int argc, char** argv) {
  using namespace lumen::model;
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
      {"no cuts", [](SamplerOptions& o) { o.top_k = 0, o.top_p = 1, o.min_p = 0; }},
      {"--mirostat 2", [](SamplerOptions& o) { o.mirostat = 2; }},
  };
  std::vector<size_t> vocabularies;
  for (int i = 1; i < argc; ++i) vocabularies.push_back(std::stoul(argv[i]));
  if (vocabularies.empty()) vocabularies = {32000, 151936};
  for (const size_t vocabulary : vocabularies) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 2.5);
    std::vector<float> logits(vocabulary);
    for (float& x : logits) x = normal(random);
    for (const Case& c : cases) {
      SamplerOptions options;
      c.set(options);
      Sampler sampler(options);
      std::vector<double> times;
      for (int i = 0; i < 101; ++i) {
        const auto start = Clock::now();
        sampler.accept(sampler.pick(logits));
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
      std::nth_element(times.begin(), times.begin() + 50, times.end());
      fmt::print("{:>8} {:<20} {:8.1f}\n", vocabulary, c.name, times[50]);
    }
  }
  return 0;
}
