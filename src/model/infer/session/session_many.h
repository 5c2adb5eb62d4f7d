// Many sequences over a paged KV cache (page_pool.h). A sequence holds as many pages as it needs, sequences with a
// common prefix share its pages, and a shared page is copied on write. Layers with a sliding window have a page pool of
// their own, whose pages are freed when no token sees them any more. A step computes the next tokens of all sequences
// together; prompts are computed one after another, in chunks (chunked prefill), or in the same steps as decoding
// sequences. This code is independent of the model family: it needs a function `step_many` (and `step_many_near`).
//
// Recurrent states (model/infer/recurrent) have one slot for each sequence of a step. A sequence that no step computes
// may lose its slot to another; its states are kept as a mark then. Proved by
// tests/model/infer/session_many_test.cpp and tests/model/infer/recurrent/hybrid_test.cpp.
#pragma once

#include <functional>

#include "model/infer/narrowing/further_rows.h"
#include "model/infer/session/page_pool.h"
#include "model/infer/session/session.h"
#include "model/infer/session/step_plan.h"

namespace lumen::model::infer {

class ManySession {
 public:
  static constexpr int kMostSequences = kMostSequencesAtOnce;
  static constexpr int64_t kMostMarkBytes = int64_t{1} << 30;  // of host memory, for marks of all sequences

  // The shape of a compiled step: `tokens` tokens of each of `sequences` sequences.
  struct Shape {
    int64_t sequences = 1, tokens = 1;
    bool all = false;    // returns the logits of every token
    int64_t out = 0;     // above 0: each token is a row, and the step returns the logits of `out` of them
    bool plain = false;  // its sequences have no adapters, although others may
    friend bool operator==(const Shape&, const Shape&) = default;
    int64_t rows() const { return all ? tokens : out > 0 ? out : tokens == 1 ? sequences : 1; }
  };
  static std::vector<Shape> shapes(const SessionOptions& options, const ManyLimits& limits, bool mixed);

  // options.context: positions of the caches, shared by all sequences.
  ManySession(const LoadedModel& loaded, SessionOptions options, ManyLimits limits = {});

  // Compiles a step, or a further look at its rows, that no call has needed yet, so that none waits for it; false if
  // there is none.
  bool prepare();

  // Opens an empty sequence with one of the model's adapter sets. Returns its number, which is valid until close().
  // Error if too many are open.
  int open(int64_t set = 0);
  void close(int sequence);
  // Gives the empty sequence `to`, which has the same adapters, the first `count` tokens of `from` without computing
  // them. Returns the number of shared tokens: `count`, or 0 if sliding-window layers have freed pages that the next
  // token would see; with recurrent states the length of the last mark before `count`.
  int64_t share(int from, int to, int64_t count);
  // Truncates the sequence to `length` tokens, or to 0 if pages that the next token would see have been freed, or to
  // the last mark of recurrent states before `length`. Returns its length.
  int64_t rewind(int sequence, int64_t length);
  int64_t shareable(int from, int64_t count) const;  // what share would return, as far as recurrent states decide it
  bool is_recurrent() const { return !plan_.recurrent.empty(); }
  // Keeps a copy of the recurrent states for share and rewind. Parts of several tokens leave a mark at their end.
  void mark(int sequence);

  struct Part {
    int sequence;
    std::span<const text::TokenId> tokens;
    bool is_asked = true;  // whether logits of its last token are returned; used by feed_mixed
  };
  // Appends tokens to sequences; returns for each part the logits of its last token, [vocabulary]. Error if there are
  // too few free pages; nothing is appended then.
  std::vector<std::vector<float>> feed(std::span<const Part> parts);

  // The same as rows that are valid until the next step; reduced on the device if `asked` (one for each part) allows
  // that and SessionOptions::narrow selects it.
  std::vector<LogitRow> feed_rows(std::span<const Part> parts, std::span<const Asked> asked);

  // Cache content of whole pages, as bytes that another session with the same graph, weights and page size accepts.
  // Sliding-window layers free pages: nothing can be copied if keeps_pages() is false.
  bool keeps_pages() const { return caches_.size() == 1; }
  int64_t page_bytes();  // 0 if no layer attends
  std::string copy_pages(int sequence, int64_t first, int64_t count);
  // Appends tokens that fill whole pages, with their cache content (from copy_pages). The sequence must end at a page
  // boundary. Error if too few pages are free.
  void append_pages(int sequence, std::span<const text::TokenId> tokens, std::string_view bytes);
  // Pages hold no recurrent states. Those of a sequence, of bytes_of_states() bytes each, are known at marks (ascending
  // lengths). A sequence of appended pages needs states at its end before it is fed, shared or rewound.
  int64_t bytes_of_states();
  const std::vector<StateMarks::Mark>& marks(int sequence) const { return sequences_.at(sequence).marks.all(); }
  void set_states(int sequence, std::string bytes);
  const graph::Graph& graph() const { return plan_.graph; }
  const SessionOptions& options() const { return options_; }

  // Appends a few tokens to each of several sequences, at most rows() in total, and returns the logits of each token,
  // part by part; valid and reduced as above. Some of the tokens may be rejected (speculative decoding): call settle()
  // with the accepted length of a sequence before it is fed by another function. It rolls back at most limits.drafted
  // tokens.
  std::vector<LogitRow> feed_apart(std::span<const Part> parts, std::span<const Asked> asked = {});
  void settle(int sequence, int64_t length);
  int64_t rows() const { return limits_.rows; }

  // Appends tokens to sequences in one step, at most most_mixed() in total, and returns the logits of the last token of
  // those parts that have is_asked set (`asked`: one for each of them), in order; valid and reduced as above. Each
  // token is a row of its own that reads the KV cache of its sequence: weights are read once for all rows, but the
  // cache of a long sequence once per token.
  std::vector<LogitRow> feed_mixed(std::span<const Part> parts, std::span<const Asked> asked);
  // 0: this session does not support feed_mixed. Rows of a step do not see each other's recurrent states.
  int64_t most_mixed() const { return !is_mixed_ ? 0 : limits_.fixed > 0 ? limits_.fixed : options_.chunk; }

  // Appends tokens to one sequence, and passes the logits of each token to `see`, in order.
  void feed_all(int sequence, std::span<const text::TokenId> tokens,
                const std::function<void(std::span<const float>)>& see);

  int64_t set(int sequence) const { return sequences_.at(sequence).set; }
  int64_t length(int sequence) const { return sequences_.at(sequence).tokens.size(); }
  const std::vector<text::TokenId>& tokens(int sequence) const { return sequences_.at(sequence).tokens; }
  int64_t page_size() const { return options_.page; }
  int64_t pages() const { return caches_[0].pool.pages(); }
  int64_t free_pages() const { return caches_[0].pool.free(); }
  int64_t missing_pages(int sequence, int64_t count) const;  // new pages for `count` more tokens
  int64_t near_pages() const { return caches_.size() > 1 ? caches_[1].pool.pages() : 0; }
  int64_t free_near_pages() const { return caches_.size() > 1 ? caches_[1].pool.free() : 0; }
  // Bytes allocated so far: caches, and intermediate values of the compiled steps.
  int64_t taken_bytes() const;
  // Kernels of each compiled step, and their times.
  std::string explain() const;

 private:
  struct Program {
    Shape shape;
    std::shared_ptr<run::Program> program;
    std::map<std::string, Handed> in;
  };
  struct Cache {  // of the layers with full attention, or of those with a sliding window
    PagePool pool;
    int64_t window;
    const char *places, *pages;  // names of inputs
  };
  struct Sequence {
    bool is_open = false;
    int64_t set = 0;
    std::vector<text::TokenId> tokens;
    PicturePositions places;        // of the tokens in the caches, where pictures are read
    std::vector<PageTable> tables;  // by cache
    // Number of tokens in the caches: all, but after a rewind of recurrent states by settle().
    int64_t computed = 0;
    int64_t slot = -1;  // of recurrent states; -1: they are the mark at `computed`, or zeros
    uint64_t used = 0;  // the last step that computed it
    StateMarks marks;
  };
  struct Row {  // of a step: tokens of a sequence, starting at position `start`
    int sequence;
    std::span<const text::TokenId> tokens;
    int64_t start;
  };
  Program& program(Shape shape);
  Shape shape_for(int64_t sequences, int64_t tokens, bool mixed = false) const;
  void check(std::span<const Part> parts) const;
  const StepPlan& plan_for(Shape shape);
  bool is_plain(std::span<const Part> parts) const;
  bool is_of(size_t cache, const std::string& state) const;
  void each_part(int32_t page, const std::function<void(void* begin, int64_t bytes)>& see);
  void copy_page(size_t cache, int32_t from, int32_t to);
  // Runs one step; its rows are the parts, or the tokens of one part.
  Program& run(Shape shape, std::span<const Part> parts, std::span<const Asked> asked = {}, bool apart = false,
               bool all = false);
  std::vector<LogitRow> feed_fixed(std::span<const Part> parts, std::span<const Asked> asked);
  std::vector<float> rows_of(const Program& p, int64_t first, int64_t count);
  std::vector<LogitRow> narrowed_rows(const Program& p, std::span<const Asked> asked);
  // The first `count` rows of a step, at least one: reduced if `asked` allows it, otherwise whole.
  std::vector<LogitRow> rows_behind(const Program& p, int64_t count, std::span<const Asked> asked);
  Sequence& sequence(int number);
  RecurrentStates recurrent() const;
  int64_t free_slot(std::span<const Part> parts);
  void bring_states(std::span<const Part> parts);
  void drop_slot(Sequence& t);
  void limit_marks();
  void catch_up(std::span<const Part> parts);
  std::vector<LogitRow> feed_in_turn(std::span<const Part> parts);

  const LoadedModel& loaded_;
  SessionOptions options_;
  ManyLimits limits_;
  bool is_mixed_;
  StepPlan plan_;
  std::optional<StepPlan> plain_;  // compiled on first use
  std::vector<Cache> caches_;
  std::map<std::string, run::DeviceTensorRef> states_;
  std::deque<Program> programs_;
  std::optional<FurtherRows> further_;
  int64_t cache_bytes_ = 0, work_bytes_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<bool> slots_;  // of recurrent states: whether a sequence has it
  uint64_t steps_ = 0;
};

}  // namespace lumen::model::infer
