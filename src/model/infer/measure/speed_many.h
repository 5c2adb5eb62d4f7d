// How fast many texts are read and written together, as `lumen run --parallel` and the server do it: through a batch
// (generate/text_batch.h), every token drawn by a sampler. Proved by tests/cli.
#pragma once

#include "model/infer/generate/text_batch.h"
#include "model/infer/measure/speed.h"

namespace lumen::model {

inline constexpr int kMostMeasured = ManySession::kMostTexts;

// A test of test.texts texts. Writing is timed while all of them write, prompts aside: those are test.depth tokens
// long. The model needs a tokenizer.
Speed measure_many(const LoadedModel& loaded, const SpeedTest& test, const SpeedOptions& options,
                   const std::function<void(const std::string&)>& note, const std::function<bool()>& stop,
                   std::string* explained = nullptr);

}  // namespace lumen::model
