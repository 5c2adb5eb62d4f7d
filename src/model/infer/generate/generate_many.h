// Many sequences generated at once: each step computes the next token of every one of them together, which costs little
// more than the next token of one. A sequence that ends makes room for the next in line; prefixes that prompts share
// are computed once. Proved by tests/model/infer/generate_many_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/infer/generate/sequence_batch.h"

namespace lumen::model {

struct ManyRequest {
  std::vector<TokenId> prompt;
  uint32_t seed = 0;
};

struct ManyOptions {
  SessionOptions session;  // context: tokens of all sequences together; 0: as many as they may need
  SamplerOptions sampling;
  GenerateOptions generate;
  int64_t parallel = 8;  // sequences at once, at most ManySession::kMostSequences
  DraftOptions draft;
};

// What requests will take: for forecasts.
struct ManyPlan {
  SessionOptions session;
  ManyLimits limits;
  std::vector<int64_t> most;  // tokens each sequence may have, in the end
};
// Error when a prompt is longer than a sequence may become.
ManyPlan plan_requests(const Model& model, const ManyOptions& options, const std::vector<ManyRequest>& requests);

// Answers in the order of the requests. `done` hears of each as it ends. Those that `go_on` cut off are marked so.
// `explained` gets the kernels of the steps and their times.
std::vector<ManyAnswer> answer_all(const LoadedModel& loaded, const ManyOptions& options,
                                   const std::vector<ManyRequest>& requests,
                                   const std::function<void(size_t, const ManyAnswer&)>& done,
                                   const std::function<bool()>& go_on, std::string* explained = nullptr);

}  // namespace lumen::model
