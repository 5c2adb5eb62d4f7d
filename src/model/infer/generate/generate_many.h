// Batched generation: each step computes the next token of all sequences, which costs little more than one token of a
// single sequence. When a sequence ends, the next request takes its slot; common prefixes of prompts are computed once.
// Proved by tests/model/infer/generate_many_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/infer/generate/sequence_batch.h"

namespace lumen::model::infer {

struct ManyRequest {
  std::vector<text::TokenId> prompt;
  uint32_t seed = 0;
};

struct ManyOptions {
  SessionOptions session;  // context: cache positions of all sequences together; 0: as many as they may need
  SamplerOptions sampling;
  GenerateOptions generate;
  int64_t parallel = 8;  // sequences decoded at once, at most ManySession::kMostSequences
  DraftOptions draft;
};

// Memory needs of a list of requests, for forecasts.
struct ManyPlan {
  SessionOptions session;
  ManyLimits limits;
  std::vector<int64_t> most;  // maximum length of each sequence
};
// Error if a prompt is longer than the maximum length of a sequence.
ManyPlan plan_requests(const arch::Model& model, const ManyOptions& options, const std::vector<ManyRequest>& requests);

// Returns answers in the order of the requests. `done` is called for each one when it ends. Answers that `go_on` cuts
// off are marked as interrupted. `explained` gets the kernels of the steps and their times.
std::vector<ManyAnswer> answer_all(const LoadedModel& loaded, const ManyOptions& options,
                                   const std::vector<ManyRequest>& requests,
                                   const std::function<void(size_t, const ManyAnswer&)>& done,
                                   const std::function<bool()>& go_on, std::string* explained = nullptr);

}  // namespace lumen::model::infer
