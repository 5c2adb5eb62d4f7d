#include "model/infer/measure/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"
#include "model/infer/measure/speed_many.h"
#include "model/infer/measure/token_source.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kContextStep = 256;  // tests of similar length share kernels

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return x.empty() ? 0 : sum / x.size();
}

double deviation(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double middle = mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - middle) * (v - middle);
  return std::sqrt(sum / (x.size() - 1));
}

}  // namespace

std::string SpeedTest::name() const {
  std::string text;
  if (prompt > 0) text += fmt::format("pp{}", prompt);
  if (generate > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", generate);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (sequences > 0) text += fmt::format(" x {}", sequences);
  return text;
}

double Speed::mean_seconds() const {
  return mean(seconds);
}
double Speed::deviation_seconds() const {
  return deviation(seconds);
}
std::vector<double> Speed::rates() const {
  std::vector<double> out;
  for (size_t i = 0; i < seconds.size(); ++i) out.push_back(tokens[i] / std::max(seconds[i], 1e-12));
  return out;
}
double Speed::mean_rate() const {
  return mean(rates());
}
double Speed::deviation_rate() const {
  return deviation(rates());
}

Speed measure_speed(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                    const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                    const run::Ceilings* ceilings, std::string* explained) {
  LUMEN_CHECK(test.prompt + test.generate > 0 && test.depth >= 0 && options.repetitions > 0);
  if (test.sequences > 0) return measure_many(loaded, test, options, note, stop, explained);
  SessionOptions session_options = options.session;
  const int64_t length = test.depth + test.prompt + test.generate;
  session_options.context = round_up(length, kContextStep);
  Session session(loaded, session_options);
  TokenSource source(loaded.model().integer("vocab"));
  const std::vector<text::TokenId> prompt = source.next(test.prompt);

  const auto run = [&](int64_t generate) {
    if (!prompt.empty()) session.feed(prompt);
    for (int64_t i = 0; i < generate; ++i) {
      const text::TokenId id = source.next();
      session.feed({&id, 1});
    }
  };
  if (options.warm_up) {
    note(fmt::format("{}: warm-up", test.name()));
    run(std::min<int64_t>(test.generate, 1));
    session.rewind(0);
  }
  if (test.depth > 0) {
    note(fmt::format("{}: reading {} tokens", test.name(), test.depth));
    session.feed(source.next(test.depth));
  }
  Speed speed;
  speed.test = test;
  speed.context = session_options.context;
  session.forget_times();
  for (int64_t r = 0; r < options.repetitions && !stop(); ++r) {
    note(fmt::format("{}: run {} of {}{}", test.name(), r + 1, options.repetitions,
                     speed.seconds.empty() ? "" : fmt::format(", {:.2f} tokens/s", speed.mean_rate())));
    session.rewind(test.depth);
    const double start = seconds_now(options.cpu_time);
    run(test.generate);
    speed.seconds.push_back(seconds_now(options.cpu_time) - start);
    speed.tokens.push_back(test.prompt + test.generate);
  }
  if (explained) *explained = session.explain(ceilings);
  return speed;
}

}  // namespace lumen::model::infer
