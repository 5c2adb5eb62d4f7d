#include "model/infer/measure/speed_many.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/check.h"
#include "model/infer/measure/token_source.h"

namespace lumen::model::infer {
namespace {

// One repetition. Prompts are computed one after another, so earlier sequences generate more tokens.
class Round {
 public:
  Round(const SpeedTest& test, const SpeedOptions& options, int64_t longest)
      : test_(test), options_(options), longest_(longest) {}

  // Runs all sequences; returns the timed seconds and tokens.
  std::pair<double, int64_t> run(SequenceBatch& batch, TokenSource& source, const std::function<bool()>& stop) {
    const bool is_split = test_.prompt == 0;  // the phase before all sequences generate is not timed
    const int64_t read = is_split ? std::max<int64_t>(test_.depth, 1) : test_.prompt;
    for (int64_t i = 0; i < test_.sequences; ++i) {
      SequenceOrder order;
      order.prompt = source.next(read);
      order.sampling.seed = i + 1;
      order.generate.ignore_end = true;
      order.generate.predict = is_split ? longest_ - read : std::max<int64_t>(test_.generate, 1);
      order.drawn = [this, is_first = true](text::TokenId, const LogitRow&, bool) mutable {
        if (is_first) ++writing_;
        is_first = false;
        ++drawn_;
      };
      batch.add(std::move(order));
    }
    double begin = seconds_now(options_.cpu_time);
    bool counts = !is_split;
    int64_t before = 0;
    while (!stop() && batch.step()) {
      if (is_split && counts && drawn_ - before >= test_.sequences * test_.generate) break;
      if (counts || writing_ < test_.sequences) continue;
      counts = true;
      before = drawn_;
      begin = seconds_now(options_.cpu_time);
    }
    const double took = seconds_now(options_.cpu_time) - begin;
    batch.remove_all();
    return {took, is_split ? drawn_ - before : test_.sequences * (test_.prompt + test_.generate)};
  }

 private:
  const SpeedTest& test_;
  const SpeedOptions& options_;
  int64_t longest_, writing_ = 0, drawn_ = 0;
};

}  // namespace

Speed measure_many(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                   const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                   std::string* explained) {
  LUMEN_CHECK(test.sequences > 0 && test.prompt + test.generate > 0 && (test.prompt == 0 || test.depth == 0));
  // While the last prompts are computed, the first sequences generate one token per prompt.
  const int64_t longest = test.prompt > 0 ? test.prompt + std::max<int64_t>(test.generate, 1)
                                          : std::max<int64_t>(test.depth, 1) + test.generate + test.sequences + 1;
  SessionOptions session = options.session;
  // A sequence is admitted only if all active sequences have room for one more page.
  session.context = ((longest + session.page - 1) / session.page + 1) * session.page * test.sequences;
  ManyLimits limits;
  limits.sequences = test.sequences;
  limits.longest = longest;
  SequenceBatch batch(loaded, session, limits, test.sequences);
  TokenSource source(loaded.model().integer("vocab"));
  Speed speed;
  speed.test = test;
  speed.context = session.context;
  if (options.warm_up) {
    note(fmt::format("{}: warm-up", test.name()));
    SpeedTest once = test;
    once.generate = std::min<int64_t>(test.generate, 4);
    (void)Round(once, options, longest).run(batch, source, stop);
  }
  for (int64_t r = 0; r < options.repetitions && !stop(); ++r) {
    note(fmt::format("{}: run {} of {}{}", test.name(), r + 1, options.repetitions,
                     speed.seconds.empty() ? "" : fmt::format(", {:.2f} tokens/s", speed.mean_rate())));
    const auto [seconds, tokens] = Round(test, options, longest).run(batch, source, stop);
    if (stop()) break;
    speed.seconds.push_back(seconds);
    speed.tokens.push_back(tokens);
  }
  if (explained) *explained = batch.session().explain();
  return speed;
}

}  // namespace lumen::model::infer
