// How fast a model reads prompts and generates tokens, each behind a context of some depth. What is timed is what a
// user waits for: from token ids to logits in host memory; of many sequences together (speed_many.h), to tokens. Proved
// by tests/cli.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model {

struct SpeedTest {
  int64_t prompt = 0, generate = 0, depth = 0;  // tokens read, then generated, behind `depth` others
  int64_t sequences = 0;     // so many together, tokens drawn by a sampler (speed_many.h); 0: one, without a sampler
  std::string name() const;  // "pp512", "tg128 @ d4096", "pp512+tg128", "tg128 x 64"
};

struct SpeedOptions {
  int64_t repetitions = 5;
  bool warm_up = true;     // one run that does not count: compiles kernels, touches memory
  bool cpu_time = false;   // the time this process was given instead of the time that passed: for busy machines
  SessionOptions session;  // its context is chosen by the test
};

struct Speed {
  SpeedTest test;
  int64_t context = 0;
  std::vector<double> seconds;  // of every repetition
  std::vector<int64_t> tokens;  // read and generated in it

  double mean_seconds() const;
  double deviation_seconds() const;   // 0 for one repetition
  std::vector<double> rates() const;  // tokens a second
  double mean_rate() const;
  double deviation_rate() const;
};

// `note` hears what is going on; `stop` ends it between repetitions. `explained` gets Session::explain of the timed
// runs.
Speed measure_speed(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                    const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                    const run::Ceilings* ceilings = nullptr, std::string* explained = nullptr);

}  // namespace lumen::model
