// Sequences that are generated together and come and go (continuous batching). Each step computes the next token of
// every one of them, and a chunk of one prompt, so that a long prompt delays nobody; where the session mixes them,
// chunks of several prompts share the step of the others. A sequence shares the prompt prefixes that others have
// computed, also those of ended ones as long as nobody needs their pages. When pages run out, the sequence that came
// last gives up its own and is computed again later (preemption). With a draft a sequence may bring several tokens into
// a step, each as a row of its own, and keeps those that it would have drawn. What a sequence becomes does not depend
// on who is beside it, nor on drafts. Proved by tests/model/infer/sequence_batch_test.cpp and
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

namespace lumen::model {

// What became of a sequence.
struct ManyAnswer {
  EndReason reason = EndReason::interrupted;
  std::string text, stop;                  // the output, and the stop string that ended it
  int64_t read = 0, shared = 0, made = 0;  // tokens of the prompt computed and taken from others, and tokens drawn
  int64_t from_disk = 0;                   // of those taken from others
  int64_t again = 0;                       // computed once more, after the pages were needed for other sequences
  int64_t drafted = 0, accepted = 0;       // tokens that drafts proposed, and those of them that were kept
};

// A sequence to generate.
struct SequenceOrder {
  std::vector<TokenId> prompt;  // at least one
  int64_t set = 0;              // of the model's sets of adapters
  SamplerOptions sampling;      // ids that no sequence can have are never drawn, whatever this says
  GenerateOptions generate;
  std::shared_ptr<const Constraint> constraint;  // of generate.grammar; null: none
  int64_t most = 0;  // tokens in the end, the last one aside; 0: as many as a sequence may have
  std::shared_ptr<const std::vector<TokenId>> expected = nullptr;  // what its client expects the output to be
  // All may be empty. `show` gets pieces of the output, `drawn` each token with the row it was drawn from and whether
  // it ends the sequence, `read` the logits behind each token of the prompt (which is then computed whole).
  Answer::Show show = {};
  std::function<void(TokenId, const LogitRow&, bool is_end)> drawn = {};
  std::function<void(std::span<const float>)> read = {};
  std::function<void(const ManyAnswer&)> done = {};  // the last that is heard
  std::function<void(const Error&)> failed = {};     // in place of done; without it the Error leaves step()
};

class SequenceBatch {
 public:
  // `parallel` sequences at once, at most limits.sequences.
  SequenceBatch(const LoadedModel& loaded, SessionOptions session, ManyLimits limits, int64_t parallel);

  // Keeps the KV cache of prompt prefixes in files, too, and reads it from there. False where the session lets go of
  // pages. `require_whole` throws where what was computed must not be kept; may be empty.
  bool keep_in(std::shared_ptr<PrefixFiles> files, std::function<void()> require_whole = {});
  // Sequences take what `draft` proposes (generate.draft tokens at once, at most), as far as limits.drafted and
  // limits.rows leave room.
  void draft_with(std::unique_ptr<ManyDraft> draft) { draft_ = std::move(draft); }

  uint64_t add(SequenceOrder order);  // behind all others; returns its number
  bool remove(uint64_t number);       // ends it as interrupted, and it hears so; false when it has ended before
  void remove_all();
  bool step();                                              // false when there is nothing to do
  int64_t running() const { return std::ssize(active_); }   // sequences
  int64_t running_with(int64_t set) const;                  // of them those with a set of adapters
  int64_t waiting() const { return std::ssize(waiting_); }  // for their turn, or for pages
  // How many sequences gave up their pages so far, of those with one of the model's sets of adapters.
  int64_t put_back_count(int64_t set = 0) const { return put_back_.at(set); }
  const ManySession& session() const { return session_; }
  int64_t longest() const { return longest_; }  // tokens that a sequence may have

 private:
  struct Sequence {
    uint64_t number = 0;
    SequenceOrder order;
    int sequence = -1;             // of the session
    std::vector<TokenId> pending;  // not yet computed
    bool was_read = false;         // so far that something was drawn
    int64_t scored = 0;            // tokens of the prompt whose logits were shown
    uint64_t served = 0;           // the step in which a chunk of it was read
    std::optional<ExpectedDraft> expected;
    DraftPace pace;
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<GrammarMatcher> matcher;
    std::unique_ptr<Answer> answer;
    ManyAnswer out;
  };
  using Sequences = std::list<std::unique_ptr<Sequence>>;

  std::pair<int64_t, int> known(const Sequence& t) const;
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
  std::vector<std::vector<TokenId>> next_tokens(const std::vector<Sequence*>& sequences, const Sequence* reading);
  std::optional<LogitRow> read_some(Sequence& t);
  void feed(Sequence* reading);
  struct Reading {
    Sequence* sequence;
    int64_t count;  // of its pending tokens
  };
  std::vector<Reading> mixed(const Sequence* reading, int64_t ready) const;
  void feed_mixed(const std::vector<Reading>& read, const std::vector<Sequence*>& ready);
  int64_t unread_pages() const;
  struct Choice {
    Sequence* sequence;
    const LogitRow* row;
  };
  void choose(std::span<const Choice> choices);
  void draw(Sequence& t, std::span<const TokenId> fed, std::span<const LogitRow> rows);
  void score(Sequence& t);

  const LoadedModel& loaded_;
  const Tokenizer& tokenizer_;
  int64_t chunk_, vocabulary_, longest_, parallel_, most_kept_;
  ManySession session_;
  std::unique_ptr<KeptPrefixes> prefixes_;
  std::unique_ptr<ManyDraft> draft_;  // null: none
  std::vector<TokenId> forbidden_, forbidden_with_ends_;
  Sequences active_, waiting_;
  std::list<int> kept_;  // sequences of the session that have ended, the latest first
  int64_t limit_;        // sequences at once, until one ends
  uint64_t next_number_ = 1, step_ = 0;
  std::vector<int64_t> put_back_;  // by set
};

}  // namespace lumen::model
