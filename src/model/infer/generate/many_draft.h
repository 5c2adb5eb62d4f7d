// Drafts for sequences that are generated together: each sequence may bring the tokens that a draft proposes into the
// step that all share, and keeps those that it would have drawn (sequence_batch.h). Proved by
// tests/model/infer/generate/many_draft_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/infer/generate/speculative.h"
#include "model/infer/session/session_many.h"

namespace lumen::model {

struct DraftRequest {
  uint64_t sequence;                // its number, the same in each step
  std::span<const TokenId> tokens;  // all of it so far
  int64_t most;                     // tokens that may be proposed, at least 1
};

class ManyDraft {
 public:
  virtual ~ManyDraft() = default;
  // Proposes for each sequence up to `most` tokens that may follow it; none where it knows nothing.
  virtual std::vector<std::vector<TokenId>> propose(std::span<const DraftRequest> requests) = 0;
  virtual void forget(uint64_t sequence) { (void)sequence; }  // it has ended, or waits for its turn
};

// Proposes what followed earlier in the same sequence (LookUpDraft).
class ManyLookUpDraft : public ManyDraft {
 public:
  std::vector<std::vector<TokenId>> propose(std::span<const DraftRequest> requests) override;
};

// Proposes what a smaller model with the same vocabulary finds likeliest; it computes all sequences together in steps
// of its own. It reads a long prompt a chunk at a time, and proposes nothing meanwhile, nor where its cache has no
// room.
class ManyModelDraft : public ManyDraft {
 public:
  // `limits`: those of the batch. options.context: positions for all sequences together.
  ManyModelDraft(const LoadedModel& small, SessionOptions options, ManyLimits limits,
                 std::vector<TokenId> forbidden = {});
  std::vector<std::vector<TokenId>> propose(std::span<const DraftRequest> requests) override;
  void forget(uint64_t sequence) override;
  // Limits of its own session, for forecasts.
  static ManyLimits own_limits(const LoadedModel& small, const SessionOptions& options, ManyLimits limits);

 private:
  struct At {  // how far a request is
    size_t request;
    int sequence;  // of the session
    std::vector<TokenId> fed;
    int64_t left;
  };
  std::optional<At> begin(size_t number, const DraftRequest& request, bool* may_read);
  int sequence_of(const DraftRequest& request);
  TokenId likeliest(const LogitRow& row) const;
  void step(std::vector<At>& at, std::vector<std::vector<TokenId>>& out);

  ManyLimits limits_;
  int64_t chunk_;
  ManySession session_;
  std::vector<TokenId> forbidden_;
  std::map<uint64_t, int> sequences_;
};

// Proposes from what a client expects the output to be (`prediction` of OpenAI's API): where the output agrees with it,
// what follows there.
class ExpectedDraft : public Draft {
 public:
  // `prompt`: tokens in front of what is expected.
  ExpectedDraft(std::shared_ptr<const std::vector<TokenId>> expected, int64_t prompt)
      : expected_(std::move(expected)), prompt_(prompt) {}
  std::vector<TokenId> propose(std::span<const TokenId> tokens, int64_t most) override;

 private:
  std::shared_ptr<const std::vector<TokenId>> expected_;
  int64_t prompt_, at_ = 0;  // where the output agreed last
};

// How many draft tokens a sequence takes: fewer where the draft was wrong lately, for a while none where it was wrong
// from its first token on. Changes what steps cost, never what is generated.
class DraftPace {
 public:
  int64_t next(int64_t most);  // tokens, for the step that begins; at most `most`
  void learn(int64_t drafted, int64_t accepted);

 private:
  static constexpr int64_t kFirst = 8, kLongestRest = 16;
  int64_t count_ = kFirst;
  int64_t rest_ = 0, left_ = 0;  // steps without drafts: after the next failure, and still to come
};

// Which draft a batch has.
struct DraftOptions {
  bool look_up = false;
  const LoadedModel* model = nullptr;  // a smaller one, in place of look_up
  int64_t most = 16;                   // tokens proposed for a sequence at once
  bool is_on() const { return look_up || model; }
};
// The limits of a session whose sequences have drafts: rows for all of them, up to kMostSequencesAtOnce.
ManyLimits with_drafts(const DraftOptions& options, ManyLimits limits);
// Null: none. `limits`: those of the batch, filled in.
std::unique_ptr<ManyDraft> make_draft(const DraftOptions& options, const SessionOptions& session, ManyLimits limits);
// Options of the small model's session.
SessionOptions draft_session(const DraftOptions& options, SessionOptions session);

}  // namespace lumen::model
