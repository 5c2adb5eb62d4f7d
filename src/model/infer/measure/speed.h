// Speed of prompt processing and generation, each after a context of some depth. Times include everything a user waits
// for: from token ids to logits in host memory; with many sequences (speed_many.h), to sampled tokens. Proved by
// tests/cli.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model::infer {

struct SpeedTest {
  int64_t prompt = 0, generate = 0, depth = 0;  // prompt tokens, then generated tokens, after `depth` others
  int64_t sequences = 0;     // batched, with a sampler (speed_many.h); 0: one sequence, without a sampler
  std::string name() const;  // "pp512", "tg128 @ d4096", "pp512+tg128", "tg128 x 64"
};

struct SpeedOptions {
  int64_t repetitions = 5;
  bool warm_up = true;     // an untimed first run: compiles kernels, touches memory
  bool cpu_time = false;   // measures CPU time instead of elapsed time: for busy machines
  SessionOptions session;  // its context is chosen by the test
};

struct Speed {
  SpeedTest test;
  int64_t context = 0;
  std::vector<double> seconds;  // by repetition
  std::vector<int64_t> tokens;  // by repetition: prompt and generated tokens

  double mean_seconds() const;
  double deviation_seconds() const;   // 0 for one repetition
  std::vector<double> rates() const;  // tokens per second
  double mean_rate() const;
  double deviation_rate() const;
};

// `note` gets progress messages; `stop` ends the test between repetitions. `explained` gets Session::explain of the
// timed runs.
Speed measure_speed(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                    const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                    const run::Ceilings* ceilings = nullptr, std::string* explained = nullptr);

}  // namespace lumen::model::infer
