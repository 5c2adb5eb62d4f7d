// Many sequences at once over a paged KV cache (page_pool.h). A sequence holds as many pages as it needs, sequences
// with a common prefix share its pages, and a shared page is copied before one of them writes to it. Layers with a
// window have pages of their own, which are freed when no token sees them any more. A step computes the next tokens of
// all sequences together; prompts are read one after another, in chunks, or in the same steps as the others. Nothing
// here knows the family: it needs a function `step_many` (and `step_many_near`). Proved by
// tests/model/infer/session_many_test.cpp.
#pragma once

#include <functional>

#include "model/infer/session/page_pool.h"
#include "model/infer/session/session.h"
#include "model/infer/session/step_plan.h"

namespace lumen::model {

class ManySession {
 public:
  static constexpr int kMostSequences = kMostSequencesAtOnce;

  // What a step is compiled for: `tokens` tokens of each of `sequences` sequences.
  struct Shape {
    int64_t sequences = 1, tokens = 1;
    bool all = false;    // it gives the logits behind every token
    int64_t out = 0;     // above 0: it gives those behind so many of the tokens, each of which is a row of its own
    bool plain = false;  // its sequences have no adapters, though others of the model may
    friend bool operator==(const Shape&, const Shape&) = default;
    int64_t rows() const { return all ? tokens : out > 0 ? out : tokens == 1 ? sequences : 1; }
  };
  static std::vector<Shape> shapes(const SessionOptions& options, const ManyLimits& limits, bool mixed);

  // options.context: positions of the caches, for all sequences together.
  ManySession(const LoadedModel& loaded, SessionOptions options, ManyLimits limits = {});

  // Opens an empty sequence with one of the model's sets of adapters, and returns its number, which is valid until it
  // is closed. Error when too many are open.
  int open(int64_t set = 0);
  void close(int sequence);
  // Gives `to`, an empty sequence with the same adapters, the first `count` tokens of `from`; nothing is computed.
  // Returns how many it got: `count`, or 0 when layers with a window have let go of what the next token would see.
  int64_t share(int from, int to, int64_t count);
  // Shortens the sequence to `length` tokens, or to 0 when what the next token would see is gone. Returns its length.
  int64_t rewind(int sequence, int64_t length);

  struct Part {
    int sequence;
    std::span<const TokenId> tokens;
    bool is_asked = true;  // what follows its last token; heeded by feed_mixed
  };
  // Appends tokens to sequences; returns for each part the logits behind its last token, [vocabulary]. Error when no
  // page is free; then nothing was appended.
  std::vector<std::vector<float>> feed(std::span<const Part> parts);

  // The same as rows that are valid until the next step, narrowed for who asks so (one for each part) where the options
  // say so.
  std::vector<LogitRow> feed_rows(std::span<const Part> parts, std::span<const Asked> asked);

  // What the caches hold of whole pages, as bytes that another session of the same graph, weights and page size takes
  // back. Layers with a window let go of pages: none are copied where keeps_pages() is false.
  bool keeps_pages() const { return caches_.size() == 1; }
  int64_t page_bytes();
  std::string copy_pages(int sequence, int64_t first, int64_t count);
  // Appends tokens that fill whole pages, given what the caches hold of them (copy_pages). The sequence must end at the
  // end of a page. Error when no page is free.
  void append_pages(int sequence, std::span<const TokenId> tokens, std::string_view bytes);
  const graph::Graph& graph() const { return plan_.graph; }
  const SessionOptions& options() const { return options_; }

  // Appends a few tokens to each of some sequences, at most rows() in all, and returns the logits behind every one of
  // them, part by part; valid and narrowed as above. Some of the tokens may turn out wrong: settle() is called with the
  // length that a sequence really has before it is fed in another way. It goes back at most limits.drafted tokens.
  std::vector<LogitRow> feed_apart(std::span<const Part> parts, std::span<const Asked> asked = {});
  void settle(int sequence, int64_t length);
  int64_t rows() const { return limits_.rows; }

  // Appends tokens to sequences in one step, at most most_mixed() in all, and returns the logits behind the last token
  // of those parts that are asked (`asked`: one for each of them), in their order; valid and narrowed as above. Each
  // token is a row of its own that reads the KV cache of its sequence: weights are read once for all, but the cache of
  // a long sequence once for each token.
  std::vector<LogitRow> feed_mixed(std::span<const Part> parts, std::span<const Asked> asked);
  int64_t most_mixed() const { return is_mixed_ ? options_.chunk : 0; }  // 0: feed_mixed is not for this session

  // Appends tokens to one sequence, and passes `see` the logits behind every one of them, in order.
  void feed_all(int sequence, std::span<const TokenId> tokens, const std::function<void(std::span<const float>)>& see);

  int64_t set(int sequence) const { return sequences_.at(sequence).set; }
  int64_t length(int sequence) const { return sequences_.at(sequence).tokens.size(); }
  const std::vector<TokenId>& tokens(int sequence) const { return sequences_.at(sequence).tokens; }
  int64_t page_size() const { return options_.page; }
  int64_t pages() const { return caches_[0].pool.pages(); }
  int64_t free_pages() const { return caches_[0].pool.free(); }
  int64_t missing_pages(int sequence, int64_t count) const;  // that `count` more tokens would take
  int64_t near_pages() const { return caches_.size() > 1 ? caches_[1].pool.pages() : 0; }
  int64_t free_near_pages() const { return caches_.size() > 1 ? caches_[1].pool.free() : 0; }
  // Bytes taken so far: caches, and values of the steps that were compiled.
  int64_t taken_bytes() const;
  // Kernels of each step that was compiled, and their times.
  std::string explain() const;

 private:
  struct Program {
    Shape shape;
    std::shared_ptr<run::Program> program;
    std::map<std::string, Handed> in;
  };
  struct Cache {  // of the layers that see everything, or of those with a window
    PagePool pool;
    int64_t window;
    const char *places, *pages;  // inputs
  };
  struct Sequence {
    bool is_open = false;
    int64_t set = 0;
    std::vector<TokenId> tokens;
    std::vector<PageTable> tables;  // by cache
  };
  struct Row {  // of a step: tokens of a sequence from position `start` on
    int sequence;
    std::span<const TokenId> tokens;
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
  // One step; its rows are those of the parts, or of the tokens of one.
  Program& run(Shape shape, std::span<const Part> parts, std::span<const Asked> asked = {}, bool apart = false);
  std::vector<float> rows_of(const Program& p, int64_t first, int64_t count);
  std::vector<LogitRow> narrowed_rows(const Program& p, std::span<const Asked> asked);
  // A step's first `count` rows, at least one: narrowed for who asks so, else whole.
  std::vector<LogitRow> rows_behind(const Program& p, int64_t count, std::span<const Asked> asked);
  Sequence& sequence(int number);

  const LoadedModel& loaded_;
  SessionOptions options_;
  ManyLimits limits_;
  bool is_mixed_;
  StepPlan plan_;
  std::optional<StepPlan> plain_;  // made when first needed
  std::vector<Cache> caches_;
  std::map<std::string, run::DeviceTensorRef> states_;
  std::deque<Program> programs_;
  int64_t cache_bytes_ = 0, work_bytes_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace lumen::model
