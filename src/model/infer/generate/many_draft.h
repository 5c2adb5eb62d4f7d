// Drafts for batched sequences (speculative decoding): each sequence may add the tokens proposed by a draft to the
// shared step, and accepts those that it would have drawn (sequence_batch.h). Proved by
// tests/model/infer/generate/many_draft_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/infer/generate/speculative.h"
#include "model/infer/session/session_many.h"

namespace lumen::model::infer {

struct DraftRequest {
  uint64_t sequence;                      // its number, constant over all steps
  std::span<const text::TokenId> tokens;  // the whole sequence so far
  int64_t most;                           // most tokens to propose, at least 1
};

class ManyDraft {
 public:
  virtual ~ManyDraft() = default;
  // Proposes up to `most` next tokens for each sequence, or none.
  virtual std::vector<std::vector<text::TokenId>> propose(std::span<const DraftRequest> requests) = 0;
  virtual void forget(uint64_t sequence) { (void)sequence; }  // it has ended or was preempted
};

// Prompt lookup: proposes the tokens that followed an earlier occurrence in the same sequence (LookUpDraft).
class ManyLookUpDraft : public ManyDraft {
 public:
  std::vector<std::vector<text::TokenId>> propose(std::span<const DraftRequest> requests) override;
};

// Proposes the most likely tokens of a smaller model with the same vocabulary, which computes all sequences together in
// steps of its own. It computes a long prompt one chunk per call; meanwhile, or if its cache is full, it proposes
// nothing.
class ManyModelDraft : public ManyDraft {
 public:
  // `limits`: those of the batch. options.context: cache positions of all sequences together.
  ManyModelDraft(const LoadedModel& small, SessionOptions options, ManyLimits limits,
                 std::vector<text::TokenId> forbidden = {});
  std::vector<std::vector<text::TokenId>> propose(std::span<const DraftRequest> requests) override;
  void forget(uint64_t sequence) override;
  // Limits of the draft model's session, for forecasts.
  static ManyLimits own_limits(const LoadedModel& small, const SessionOptions& options, ManyLimits limits);

 private:
  struct At {  // state of a request
    size_t request;
    int sequence;  // number in session_
    std::vector<text::TokenId> fed;
    int64_t left;
    bool is_marked = false;  // recurrent states behind the sequence's own tokens
  };
  std::optional<At> begin(size_t number, const DraftRequest& request, bool* may_read);
  int sequence_of(const DraftRequest& request);
  text::TokenId likeliest(const LogitRow& row) const;
  void step(std::vector<At>& at, std::vector<std::vector<text::TokenId>>& out);

  ManyLimits limits_;
  int64_t chunk_;
  ManySession session_;
  std::vector<text::TokenId> forbidden_;
  std::map<uint64_t, int> sequences_;
};

// Proposes tokens of the output predicted by the client (`prediction` in OpenAI's API): the tokens after the place that
// matches the end of the output.
class ExpectedDraft : public Draft {
 public:
  // `prompt`: number of tokens before the output.
  ExpectedDraft(std::shared_ptr<const std::vector<text::TokenId>> expected, int64_t prompt)
      : expected_(std::move(expected)), prompt_(prompt) {}
  std::vector<text::TokenId> propose(std::span<const text::TokenId> tokens, int64_t most) override;

 private:
  std::shared_ptr<const std::vector<text::TokenId>> expected_;
  int64_t prompt_, at_ = 0;  // where the output matched last
};

// Adapts the number of draft tokens of a sequence to the acceptance rate: fewer after a rejection, none for some steps
// if the first token was rejected. This changes the cost of steps, never the output.
class DraftPace {
 public:
  int64_t next(int64_t most);  // draft tokens for the next step; at most `most`
  void learn(int64_t drafted, int64_t accepted);

 private:
  static constexpr int64_t kFirst = 8, kLongestRest = 16;
  int64_t count_ = kFirst;
  int64_t rest_ = 0, left_ = 0;  // steps without drafts: after the next failure, and remaining
};

// The draft of a batch.
struct DraftOptions {
  bool look_up = false;
  const LoadedModel* model = nullptr;  // a smaller model, instead of look_up
  int64_t most = 16;                   // most tokens proposed per sequence and step
  bool is_on() const { return look_up || model; }
};
// The limits of a session with drafts: rows for all draft tokens, up to kMostSequencesAtOnce.
ManyLimits with_drafts(const DraftOptions& options, ManyLimits limits);
// Null without a draft. `limits`: those of the batch, with defaults filled in.
std::unique_ptr<ManyDraft> make_draft(const DraftOptions& options, const SessionOptions& session, ManyLimits limits);
// Session options of the draft model.
SessionOptions draft_session(const DraftOptions& options, SessionOptions session);

}  // namespace lumen::model::infer
