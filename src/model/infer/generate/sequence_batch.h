// Continuous batching: sequences are added and removed between steps. Each step computes the next token of every active
// sequence, and a chunk of one prompt (chunked prefill), so that a long prompt does not block others; if the session
// supports mixed steps, chunks of several prompts share a step with decoding sequences. Prompts reuse the cached
// prefixes of other sequences, including ended ones whose pages are not needed yet. When pages run out, the sequence
// that was admitted last is preempted and recomputed later. With a draft, a sequence may add several tokens to a step,
// each as a row of its own, and accepts those that it would have drawn. The output of a sequence depends neither on the
// other sequences nor on drafts. Proved by tests/model/infer/sequence_batch_test.cpp and
// tests/model/infer/generate/many_draft_test.cpp.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/generate/answer.h"
#include "model/infer/generate/kept_prefixes.h"
#include "model/infer/generate/many_draft.h"
#include "model/infer/session/session_many.h"

namespace lumen::model::infer {

// The result of a sequence.
struct ManyAnswer {
  EndReason reason = EndReason::interrupted;
  std::string text, stop;                  // the output, and the stop string that ended it
  int64_t read = 0, shared = 0, made = 0;  // prompt tokens computed, prompt tokens from prefix caches, and tokens drawn
  int64_t from_disk = 0;                   // part of `shared` that was read from files
  int64_t again = 0;                       // tokens recomputed after preemptions
  int64_t drafted = 0, accepted = 0;       // tokens proposed by drafts, and those accepted
};

// A request to generate a sequence.
struct SequenceOrder {
  std::vector<text::TokenId> prompt;  // at least one token
  int64_t set = 0;                    // one of the model's adapter sets
  std::vector<PictureRef> pictures;   // those of the prompt, which are held until the sequence ends
  SamplerOptions sampling;            // ids outside of the tokenizer's vocabulary are never drawn
  GenerateOptions generate;
  std::shared_ptr<const Constraint> constraint;  // for generate.grammar; null: none
  int64_t most = 0;                              // maximum length without the last token; 0: that of the session
  std::shared_ptr<const std::vector<text::TokenId>> expected = nullptr;  // the output predicted by the client
  // Callbacks, all optional. `show` gets pieces of the output, `drawn` each token with the row it was drawn from and
  // whether it ends the sequence, `read` the logits of each token of the prompt (which is then computed without prefix
  // caches).
  Answer::Show show = {};
  std::function<void(text::TokenId, const LogitRow&, bool is_end)> drawn = {};
  std::function<void(std::span<const float>)> read = {};
  std::function<void(const ManyAnswer&)> done = {};  // the last callback
  std::function<void(const Error&)> failed = {};     // instead of done; if empty, step() throws the Error
};

class SequenceBatch {
 public:
  // `parallel`: most active sequences, at most limits.sequences.
  SequenceBatch(const LoadedModel& loaded, SessionOptions session, ManyLimits limits, int64_t parallel);

  // Adds a prefix cache in files. False if the session frees pages of a sliding window. `require_whole` throws if
  // computed values must not be stored; may be empty.
  bool keep_in(std::shared_ptr<PrefixFiles> files, std::function<void()> require_whole = {});
  // Uses `draft`, with at most generate.draft tokens per sequence and step, within limits.drafted and limits.rows.
  void draft_with(std::unique_ptr<ManyDraft> draft) { draft_ = std::move(draft); }

  bool prepare() { return session_.prepare(); }  // compiles a step that may be needed later; false if there is none
  uint64_t add(SequenceOrder order);             // at the end of the queue; returns its number
  bool remove(uint64_t number);  // ends it as interrupted and calls `done`; false if it has already ended
  void remove_all();
  bool step();                                              // false if there are no sequences
  int64_t running() const { return std::ssize(active_); }   // active sequences
  int64_t running_with(int64_t set) const;                  // active sequences with this adapter set
  int64_t waiting() const { return std::ssize(waiting_); }  // for admission, or preempted
  // Number of preemptions so far, of sequences with this adapter set.
  int64_t put_back_count(int64_t set = 0) const { return put_back_.at(set); }
  bool shares_steps() const { return session_.most_mixed() > 0; }  // whether several prompts are computed in one step
  const ManySession& session() const { return session_; }
  int64_t longest() const { return longest_; }  // maximum length of a sequence

 private:
  struct Sequence {
    uint64_t number = 0;
    SequenceOrder order;
    int sequence = -1;                   // number in session_
    std::vector<text::TokenId> pending;  // tokens not computed yet
    int64_t scored = 0;                  // prompt tokens whose logits were passed to `read`
    uint64_t served = 0;                 // the last step that computed a chunk of it
    int64_t common = 0;  // prompt tokens that another sequence began with: recurrent states get a mark there
    std::optional<ExpectedDraft> expected;
    DraftPace pace;
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<GrammarMatcher> matcher;
    std::unique_ptr<Answer> answer;
    ManyAnswer out;
  };
  using Sequences = std::list<std::unique_ptr<Sequence>>;

  std::pair<int64_t, int> known(const Sequence& t, int64_t* common) const;
  bool is_being_read(const Sequence& t) const;
  bool is_scored(const Sequence& t) const { return t.order.read && t.scored < std::ssize(t.order.prompt); }
  bool admit();
  void begin(Sequence& t);
  Sequence* next_to_read();
  int64_t missing(const Sequence* reading) const;
  bool drop_kept();
  void put_back();
  void keep(int sequence);
  Sequences::iterator finish(Sequences::iterator t, const Error* error = nullptr);
  std::vector<std::vector<text::TokenId>> next_tokens(const std::vector<Sequence*>& sequences, const Sequence* reading);
  std::optional<LogitRow> read_some(Sequence& t);
  void feed(Sequence* reading);
  struct Reading {
    Sequence* sequence;
    int64_t count;  // number of its pending tokens
  };
  std::vector<Reading> mixed(const Sequence* reading, int64_t ready) const;
  void feed_mixed(const std::vector<Reading>& read, const std::vector<Sequence*>& ready);
  int64_t unread_pages() const;
  void draw(Sequence& t, std::span<const text::TokenId> fed, std::span<const LogitRow> rows);
  void score(Sequence& t);

  const LoadedModel& loaded_;
  const text::Tokenizer& tokenizer_;
  int64_t chunk_, vocabulary_, longest_, parallel_, most_kept_;
  ManySession session_;
  std::unique_ptr<KeptPrefixes> prefixes_;
  std::unique_ptr<ManyDraft> draft_;  // null: none
  std::vector<text::TokenId> forbidden_, forbidden_with_ends_;
  Sequences active_, waiting_;
  std::list<int> kept_;  // ended sequences that are still open, the latest first
  int64_t limit_;        // most active sequences; lowered by a preemption until a sequence ends
  uint64_t next_number_ = 1, step_ = 0;
  std::vector<int64_t> put_back_;  // preemptions by adapter set
};

}  // namespace lumen::model::infer
