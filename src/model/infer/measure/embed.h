// Embedding vectors: the last hidden states of the tokens of an input, pooled; and scores of pairs of inputs. This code
// is independent of the model family: it needs a function `hidden` of `tokens` [B, T] with causal attention, or of
// `tokens` and `lengths` [B], the number of tokens of each sequence, where no token attends to padding. A function
// `scores` has one more input, `seconds` [B], where the second part of each sequence begins, and the result [B, 1]. A
// function `after_pooling` of `x` [B, E] makes other vectors of pooled ones: dense layers after the model.
// Proved by tests/model/infer/measure.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "model/infer/measure/pooling.h"
#include "model/infer/session/session.h"

namespace lumen::model::infer {

struct EmbedOptions {
  int64_t context = 0;   // tokens of a sequence at most; 0: the model's context
  int64_t batch = 1024;  // tokens per batch, of as many sequences as fit; a longer sequence is computed alone
  bool exact = false;    // f32 activations throughout
  bool scores = false;   // the family's function is `scores`, not `hidden`
};

// Sequences of two parts, such as a query and a document, for a function `scores`.
struct TextPairs {
  std::vector<std::vector<text::TokenId>> sequences;
  std::vector<int64_t> seconds;  // the number of tokens before the second part
};

class Embedder {
 public:
  explicit Embedder(const LoadedModel& loaded, EmbedOptions options = {});
  int64_t size() const { return after_ ? after_size_ : size_; }  // of a pooled vector
  int64_t context() const { return options_.context; }
  double seconds() const { return seconds_; }  // total of all sequences so far, without compiling

  using Vectors = std::vector<std::vector<float>>;
  // One vector, or one for each token (none). Error when the sequence is empty or too long.
  Vectors embed(std::span<const text::TokenId> tokens, Pooling pooling);
  // The same for many sequences; those of similar length are batched. `go_on` gets the number of finished sequences; if
  // it returns false, the result is empty. `set`: one of the model's adapter sets.
  std::vector<Vectors> embed_all(std::span<const std::vector<text::TokenId>> sequences, Pooling pooling,
                                 const std::function<bool(size_t)>& go_on = {}, int64_t set = 0);
  // The scores of a part of these pairs, before the sigmoid; requires options.scores.
  std::vector<float> scores_of(const TextPairs& pairs, size_t begin, size_t end, int64_t set = 0);

 private:
  struct Width {  // the function compiled for `sequences` sequences of at most `tokens` tokens
    int64_t sequences, tokens;
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef in, lengths, sets, seconds;
  };
  const Width& width(int64_t sequences, int64_t tokens);
  void check(std::span<const text::TokenId> tokens) const;
  int64_t tokens_for(int64_t count) const;
  // Replaces pooled vectors by those that the dense layers make of them.
  void finish(std::span<Vectors*> pooled, int64_t sequences);
  // `seconds`: for each sequence; empty without scores.
  void run(int64_t tokens, std::span<const std::span<const text::TokenId>> sequences, Pooling pooling,
           std::span<Vectors*> out, int64_t set, std::span<const int64_t> seconds);
  std::vector<Vectors> run_all(std::span<const std::vector<text::TokenId>> sequences, Pooling pooling,
                               const std::function<bool(size_t)>& go_on, int64_t set, std::span<const int64_t> seconds);

  const LoadedModel& loaded_;
  EmbedOptions options_;
  graph::Graph graph_;
  int64_t size_ = 0;                   // of a hidden state
  std::optional<graph::Graph> after_;  // dense layers after the pooling
  int64_t after_size_ = 0;
  std::map<int64_t, std::shared_ptr<run::Program>> after_programs_;  // by number of sequences
  double seconds_ = 0;
  std::deque<Width> widths_;
};

}  // namespace lumen::model::infer
