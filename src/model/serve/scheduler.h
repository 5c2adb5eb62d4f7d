// Decides which request runs when. Requests wait in a bounded queue, and their sequences join the running batch as
// others leave; of several requests the one with the fewest running sequences begins its next one, the oldest first. A
// request ends when its outputs do, when its client has left or reads too slowly, and when its time is over. One thread
// runs the model (run()), any thread may submit. An output depends on its request alone. Proved by
// tests/model/serve/scheduler_test.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/infer/generate/sequence_batch.h"
#include "model/infer/measure/embed.h"
#include "model/serve/metrics.h"
#include "model/serve/request.h"

namespace lumen::model {

// A token and how likely it was: natural logarithms of what the model's own logits say, before penalties, temperature
// and cuts.
struct TokenChance {
  TokenId id = 0;
  double chance = 0;
  std::vector<std::pair<TokenId, double>> top;  // the likeliest, best first
};
// Of a token of the vocabulary; `top` of the likeliest come with it. Of a row whose narrowed form has all of that, the
// rest is not fetched.
TokenChance chance_of(const LogitRow& row, TokenId id, int64_t top);

// The new part of one answer of a request.
struct Delta {
  int64_t index = 0;  // of the answer: prompt * n + which of its n
  std::string text;
  std::vector<std::optional<TokenChance>>
      tokens;  // where asked for; nullopt for the first of a prompt, which is `first`
  TokenId first = 0;
  bool ended = false;
  bool out_of_time = false;
  ManyAnswer answer;  // when ended
};

enum class CancelReason { none, client_left, too_slow, shutdown };

// A running request: the model's thread puts parts in, the client's thread takes them out.
class Answering {
 public:
  explicit Answering(size_t most_bytes) : most_bytes_(most_bytes) {}
  // The next part; nullopt when there is none within `seconds`. Refusal when the request failed.
  std::optional<Delta> next(double seconds);
  void cancel(CancelReason reason);

 private:
  friend class Scheduler;
  void put(Delta delta);
  void fail(int status, const std::string& message);

  const size_t most_bytes_;  // that wait to be taken; with more the client reads too slowly
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delta> deltas_;
  size_t bytes_ = 0;
  std::optional<Refusal> failure_;
  std::atomic<CancelReason> cancelled_{CancelReason::none};
};

// A running request for embedding vectors.
class Embedding {
 public:
  // The vectors, in the order of the inputs; nothing within `seconds`. Refusal when it failed.
  std::optional<std::vector<std::vector<float>>> take(double seconds);
  void cancel() { is_cancelled_ = true; }

 private:
  friend class Scheduler;
  void fail(int status, const std::string& message);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<TokenId>> inputs_;
  int64_t set_ = 0;
  std::vector<std::vector<float>> vectors_;
  bool is_done_ = false;
  std::optional<Refusal> failure_;
  std::atomic<bool> is_cancelled_{false};
};

struct SchedulerOptions {
  SessionOptions session;               // context: tokens of all sequences together
  int64_t parallel = 8;                 // sequences generated at once
  int64_t kept = 8;                     // ended sequences whose pages are kept for prompts with the same prefix
  int64_t queue = 256;                  // sequences that may wait; more are refused
  double seconds = 600;                 // a request may take, waiting included
  size_t most_bytes = size_t{1} << 20;  // of a request that its client has not taken
  Pooling pooling = Pooling::mean;      // of vectors
  DraftOptions draft;                   // its model outlives this
  std::shared_ptr<PrefixFiles> prefixes = nullptr;  // where prompt prefixes outlive this process; null: nowhere
  // Asked behind every step, before anything of it is handed over: an Error where what the model is read from is no
  // longer what it was. Then all requests end, and new ones are refused (503). May be empty.
  std::function<void()> require_whole = {};
};

class Scheduler {
 public:
  // The model outlives this. Requests that name different sets of its adapters share queue, cache and steps.
  Scheduler(const LoadedModel& loaded, SchedulerOptions options);

  int64_t longest() const { return batch_ ? batch_->longest() : 0; }  // tokens of a sequence; 0: it generates none
  int64_t longest_read() const { return embedder_ ? embedder_->context() : 0; }

  // Refusal when the queue is full (429) or no more are taken (503).
  std::shared_ptr<Answering> submit(GenerationRequest request);
  std::shared_ptr<Embedding> submit(EmbeddingRequest request);
  void drain();  // no more are taken
  // Runs the model until it is told to drain and all is done, or `go_on` is false, which ends what is left.
  void run(const std::function<bool()>& go_on);
  // The same for several that share one engine and one thread: a step of each in turn, so that none holds another up.
  static void run_in_turn(std::span<Scheduler* const> all, const std::function<bool()>& go_on);
  ServeNumbers numbers(int64_t set = 0) const;  // of the requests with one of the model's sets of adapters

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {  // a request
    std::shared_ptr<Answering> answering;
    GenerationRequest request;
    Clock::time_point begin, first;
    int64_t next = 0, ended = 0, made = 0;  // outputs begun, ended, and tokens
    bool has_begun = false, is_over = false;
    std::vector<std::pair<int64_t, uint64_t>> running;  // outputs by index, and their numbers in the batch
    std::vector<Delta> fresh;                           // by output
    int64_t set() const { return request.set; }
    int64_t count() const { return std::ssize(request.prompts) * request.n; }
  };

  bool is_idle();
  bool round(double wait);
  void end();
  bool take_new(double wait);
  void begin_outputs();
  void begin_output(const std::shared_ptr<Open>& open);
  void end_some(const std::function<bool(const Open&)>& which, bool out_of_time);
  void hand_over();
  void look_at_clients();
  void step();
  void embed();
  void fail_all(int status, const std::string& message);
  std::string broken() const;
  void look_at_files();
  void require_service() const;  // Refusal where nothing is taken; the lock is held
  void count();

  SchedulerOptions options_;
  std::optional<SequenceBatch> batch_;
  std::optional<Embedder> embedder_;
  std::list<std::shared_ptr<Open>> open_;             // of the model's thread
  std::list<std::shared_ptr<Embedding>> embeddings_;  // likewise, the first is at work

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::list<std::shared_ptr<Open>> new_;
  std::list<std::shared_ptr<Embedding>> new_embeddings_;
  int64_t outputs_ = 0;             // asked for, and not ended
  int64_t waiting_embeddings_ = 0;  // inputs not yet computed
  bool is_draining_ = false;
  std::string broken_;                 // why the model cannot be used any more
  std::vector<ServeNumbers> numbers_;  // by set
};

}  // namespace lumen::model
