// Schedules requests. They wait in a bounded queue, and their sequences join the running batch when slots become free;
// the request with the fewest running sequences starts its next one first, then the oldest request. A request ends when
// its outputs end, when its client disconnects or reads too slowly, or when its time limit is reached. One thread runs
// the model (run()); any thread may submit. An output depends only on its own request. Proved by
// tests/model/serve/scheduler_test.cpp.
#pragma once

#include <algorithm>
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
#include "model/infer/tower/tower.h"
#include "model/serve/metrics.h"
#include "model/serve/request.h"

namespace lumen::model::serve {

// A token and its log probability (natural logarithm) by the model's own logits, before penalties, temperature and
// truncation.
struct TokenChance {
  text::TokenId id = 0;
  double chance = 0;
  std::vector<std::pair<text::TokenId, double>> top;  // the most likely tokens, best first
};
// The log-probability of a token of the vocabulary, with the `top` most likely tokens. A reduced row that has all of
// these is not fetched.
TokenChance chance_of(const infer::LogitRow& row, text::TokenId id, int64_t top);

// New output of one answer of a request.
struct Delta {
  int64_t index = 0;  // index of the answer: prompt * n + its number among the n
  std::string text;
  std::vector<std::optional<TokenChance>>
      tokens;  // if requested; nullopt for the first token of a prompt, which is `first`
  text::TokenId first = 0;
  bool ended = false;
  bool out_of_time = false;
  infer::ManyAnswer answer;  // valid if ended
};

// Appends a later delta of the same answer.
void append(Delta* delta, Delta later);

enum class CancelReason { none, client_left, too_slow, shutdown };

// A running request: the model's thread adds deltas, the client's thread takes them. Deltas of an answer that have not
// been taken yet are merged, so that a slow client gets fewer and larger pieces.
class Answering {
 public:
  explicit Answering(size_t most_bytes) : most_bytes_(most_bytes) {}
  // The next delta; nullopt if there is none within `seconds`. Refusal if the request failed.
  std::optional<Delta> next(double seconds);
  void cancel(CancelReason reason);

 private:
  friend class Scheduler;
  void put(Delta delta);
  void fail(int status, const std::string& message);

  const size_t most_bytes_;  // limit of unread output; beyond it the client is too slow
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delta> deltas_;
  size_t bytes_ = 0;
  std::optional<Refusal> failure_;
  std::atomic<CancelReason> cancelled_{CancelReason::none};
};

// A running request for embedding vectors, or for the scores of pairs as vectors of one number.
class Embedding {
 public:
  // The vectors, in the order of the inputs; nullopt if they are not ready within `seconds`. Refusal if the request
  // failed.
  std::optional<std::vector<std::vector<float>>> take(double seconds);
  void cancel() { is_cancelled_ = true; }

 private:
  friend class Scheduler;
  void fail(int status, const std::string& message);

  std::mutex mutex_;
  std::condition_variable changed_;
  infer::TextPairs inputs_;  // pairs if there are seconds
  int64_t set_ = 0;
  std::vector<std::vector<float>> vectors_;
  bool is_done_ = false;
  std::optional<Refusal> failure_;
  std::atomic<bool> is_cancelled_{false};
};

struct SchedulerOptions {
  infer::SessionOptions session;                  // context: cache positions of all sequences together
  int64_t parallel = 8;                           // sequences decoded at once
  int64_t kept = 8;                               // ended sequences whose pages stay in the prefix cache
  int64_t queue = 256;                            // sequences that may wait; further requests are rejected
  double seconds = 600;                           // time limit of a request, including waiting
  size_t most_bytes = size_t{1} << 20;            // limit of a request's output that its client has not read
  infer::Pooling pooling = infer::Pooling::mean;  // of embedding vectors
  infer::DraftOptions draft;                      // its model must outlive this
  infer::Tower* tower = nullptr;                  // makes the rows of pictures; null: the model reads none
  int64_t picture_bytes = int64_t{256} << 20;     // rows of the latest pictures, which are kept for later requests
  // Whether steps are compiled while there are no requests. nullopt: on devices other than the host, whose kernels take
  // longer to compile than a client should wait.
  std::optional<bool> prepares = {};
  std::shared_ptr<infer::PrefixFiles> prefixes = nullptr;  // prefix cache on disk; null: none
  // Called after every step, before its results are passed on: throws an Error if the model's files have been modified.
  // Then all requests end, and new ones are rejected (503). May be empty.
  std::function<void()> require_whole = {};
};

class Scheduler {
 public:
  // The model must outlive this object. Requests for different adapter sets share queue, cache and steps.
  Scheduler(const infer::LoadedModel& loaded, SchedulerOptions options);

  int64_t longest() const { return batch_ ? batch_->longest() : 0; }  // tokens per sequence; 0: it cannot generate
  int64_t longest_read() const { return embedder_ ? embedder_->context() : 0; }
  bool scores_pairs() const { return scorer_.has_value(); }

  // Refusal if the queue is full (429) or the server is shutting down (503).
  std::shared_ptr<Answering> submit(GenerationRequest request);
  std::shared_ptr<Embedding> submit(EmbeddingRequest request);
  void drain();  // rejects new requests
  // Runs the model until drain() was called and all requests are finished, or until `go_on` returns false; remaining
  // requests are ended then.
  void run(const std::function<bool()>& go_on);
  // The same for several schedulers that share one engine and one thread: one step of each in turn, so that none blocks
  // the others.
  static void run_in_turn(std::span<Scheduler* const> all, const std::function<bool()>& go_on);
  ServeNumbers numbers(int64_t set = 0) const;  // of the requests for one adapter set

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {  // a submitted request
    std::shared_ptr<Answering> answering;
    GenerationRequest request;
    Clock::time_point begin, first;
    int64_t next = 0, ended = 0, made = 0;  // outputs started, outputs ended, and tokens generated
    bool has_begun = false, is_over = false;
    std::vector<std::pair<int64_t, uint64_t>> running;  // index of each running output, and its number in the batch
    std::vector<Delta> fresh;                           // by output
    int64_t set() const { return request.set; }
    int64_t count() const { return std::ssize(request.prompts) * request.n; }
    bool is_seen() const {  // all its pictures have rows
      return std::all_of(request.pictures.begin(), request.pictures.end(),
                         [](const AskedPicture& one) { return one.picture != nullptr; });
    }
  };

  bool prepare();
  bool is_idle();
  bool round(double wait);
  void end();
  bool take_new(double wait);
  void begin_outputs();
  void begin_output(const std::shared_ptr<Open>& open);
  void end_some(const std::function<bool(const Open&)>& which, bool out_of_time);
  void hand_over();
  void look_at_clients();
  void see();
  infer::PictureRef seen(const infer::PreparedPicture& picture);
  void step();
  void embed();
  void fail_all(int status, const std::string& message);
  std::string broken() const;
  void look_at_files();
  void require_service() const;  // Refusal if no requests are accepted; the lock must be held
  void count();

  SchedulerOptions options_;
  std::optional<infer::SequenceBatch> batch_;
  std::optional<infer::Embedder> embedder_, scorer_;  // of vectors, and of pairs
  std::list<std::shared_ptr<Open>> open_;             // owned by the model's thread
  std::list<std::shared_ptr<Embedding>> embeddings_;  // the same; the first is in progress
  std::list<infer::PictureRef> seen_;                 // pictures with rows, the latest first
  const infer::LoadedModel& loaded_;

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::list<std::shared_ptr<Open>> new_;
  std::list<std::shared_ptr<Embedding>> new_embeddings_;
  int64_t outputs_ = 0;             // outputs requested and not ended
  int64_t waiting_embeddings_ = 0;  // inputs not yet computed
  bool is_draining_ = false;
  std::string broken_;                 // why the model cannot be used any more; empty: it can
  std::vector<ServeNumbers> numbers_;  // by adapter set
};

}  // namespace lumen::model::serve
