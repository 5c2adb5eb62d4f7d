// Speed of many sequences in a batch, as in `lumen run --parallel` and the server: by generate/sequence_batch.h, with
// every token drawn by a sampler. Proved by tests/cli.
#pragma once

#include "model/infer/generate/sequence_batch.h"
#include "model/infer/measure/speed.h"

namespace lumen::model::infer {

inline constexpr int kMostMeasured = ManySession::kMostSequences;

// A test of test.sequences sequences. Generation is timed while all of them generate, without their prompts, which are
// test.depth tokens long. The model needs a tokenizer.
Speed measure_many(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                   const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                   std::string* explained = nullptr);

}  // namespace lumen::model::infer
