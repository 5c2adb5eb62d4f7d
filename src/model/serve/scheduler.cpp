#include "model/serve/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace lumen::model::serve {
namespace {

constexpr double kIdle = 0.05;         // seconds to wait for requests when idle
constexpr double kIdleInTurn = 0.002;  // the same if several schedulers take turns
constexpr int64_t kVectorsAtOnce = 8;  // inputs that are embedded between two steps of the batch

double since(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

auto for_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

size_t weight_of(const Delta& delta) {
  size_t bytes = sizeof(Delta) + delta.text.size();
  for (const auto& token : delta.tokens) bytes += sizeof(token) + (token ? token->top.size() * 16 : 0);
  return bytes;
}

}  // namespace

TokenChance chance_of(const infer::LogitRow& row, text::TokenId id, int64_t top) {
  if (const infer::Narrowed* const narrowed = row.narrowed();
      narrowed && !row.is_whole() && narrowed->temperature == 1 && top <= std::ssize(narrowed->best)) {
    try {
      const double all = narrowed->best[0].logit + std::log(narrowed->sum);
      TokenChance out{id, narrowed->at(id) - all, {}};
      for (int64_t i = 0; i < top; ++i) out.top.emplace_back(narrowed->best[i].id, narrowed->best[i].logit - all);
      return out;
    } catch (const infer::Undecided&) {
    }
  }
  const std::span<const float> logits = row.whole();
  LUMEN_CHECK(id >= 0 && id < std::ssize(logits));
  infer::Ranking ranking(logits, {}, {}, static_cast<size_t>(std::max<int64_t>(1, top)));
  const auto [low, high] = ranking.total_within(1);
  const double all = ranking.has(0) ? ranking[0].logit + std::log((low + high) / 2) : 0;
  TokenChance out{id, logits[id] - all, {}};
  for (int64_t i = 0; i < top && ranking.has(i); ++i) out.top.emplace_back(ranking[i].id, ranking[i].logit - all);
  return out;
}

void append(Delta* delta, Delta later) {
  LUMEN_CHECK(delta->index == later.index && !delta->ended);
  if (delta->tokens.empty()) delta->first = later.first;
  delta->text += later.text;
  std::move(later.tokens.begin(), later.tokens.end(), std::back_inserter(delta->tokens));
  delta->ended = later.ended;
  delta->out_of_time = later.out_of_time;
  if (later.ended) delta->answer = std::move(later.answer);
}

std::optional<Delta> Answering::next(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, for_seconds(seconds), [&] { return failure_ || !deltas_.empty(); });
  if (failure_) throw Refusal(*failure_);
  if (deltas_.empty()) return std::nullopt;
  Delta out = std::move(deltas_.front());
  deltas_.pop_front();
  bytes_ -= weight_of(out);
  return out;
}

void Answering::cancel(CancelReason reason) {
  CancelReason none = CancelReason::none;
  cancelled_.compare_exchange_strong(none, reason);
}

void Answering::put(Delta delta) {
  const size_t bytes = weight_of(delta);
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ + bytes <= most_bytes_ || deltas_.empty()) {
      const auto same = std::find_if(deltas_.begin(), deltas_.end(),
                                     [&](const Delta& waiting) { return waiting.index == delta.index; });
      if (same == deltas_.end()) {
        bytes_ += bytes;
        deltas_.push_back(std::move(delta));
      } else {
        bytes_ -= weight_of(*same);
        append(&*same, std::move(delta));
        bytes_ += weight_of(*same);
      }
      changed_.notify_all();
      return;
    }
  }
  cancel(CancelReason::too_slow);
  fail(500, "the answer was not read in time");
}

void Answering::fail(int status, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_.emplace(status, message);
  changed_.notify_all();
}

std::optional<std::vector<std::vector<float>>> Embedding::take(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, for_seconds(seconds), [&] { return failure_ || is_done_; });
  if (failure_) throw Refusal(*failure_);
  if (!is_done_) return std::nullopt;
  return std::move(vectors_);
}

void Embedding::fail(int status, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_.emplace(status, message);
  changed_.notify_all();
}

Scheduler::Scheduler(const infer::LoadedModel& loaded, SchedulerOptions options)
    : options_(std::move(options)), loaded_(loaded), numbers_(loaded.sets()) {
  const arch::Family& family = *loaded.model().family;
  if (family.has_function("step_many")) {
    infer::ManyLimits limits;
    limits.sequences = options_.parallel;
    limits.kept = options_.kept;
    limits = with_drafts(options_.draft, limits);
    batch_.emplace(loaded, options_.session, limits, options_.parallel);
    batch_->draft_with(make_draft(options_.draft, options_.session, limits));
    if (options_.prefixes && !batch_->keep_in(options_.prefixes, options_.require_whole))
      warn(fmt::format("'{}' has sliding-window caches: its prefixes are not cached on disk", loaded.model().name));
    for (ServeNumbers& n : numbers_) n.pages = n.free_pages = batch_->session().pages();
    if (!options_.prepares) options_.prepares = !loaded.engine().device().reads_host_memory();
  }
  if (family.has_function("hidden")) embedder_.emplace(loaded, infer::EmbedOptions{.exact = options_.session.exact});
  if (family.has_function("scores"))
    scorer_.emplace(loaded, infer::EmbedOptions{.exact = options_.session.exact, .scores = true});
  if (!batch_ && !embedder_)
    throw user_error("the family '{}' can neither generate several sequences at once nor compute hidden states",
                     family.name());
}

std::shared_ptr<Answering> Scheduler::submit(GenerationRequest request) {
  LUMEN_CHECK(batch_ && request.n >= 1 && !request.prompts.empty());
  auto open = std::make_shared<Open>();
  open->answering = std::make_shared<Answering>(options_.most_bytes);
  open->request = std::move(request);
  open->begin = Clock::now();
  open->fresh.resize(open->count());
  const std::lock_guard lock(mutex_);
  require_service();
  if (outputs_ + open->count() > options_.parallel + options_.queue)
    throw Refusal(429, "too many requests are waiting; try again later");
  outputs_ += open->count();
  new_.push_back(open);
  asked_.notify_all();
  return open->answering;
}

std::shared_ptr<Embedding> Scheduler::submit(EmbeddingRequest request) {
  LUMEN_CHECK(request.seconds.empty() ? embedder_.has_value() : scorer_.has_value());
  auto embedding = std::make_shared<Embedding>();
  embedding->inputs_ = {std::move(request.inputs), std::move(request.seconds)};
  embedding->set_ = request.set;
  const std::lock_guard lock(mutex_);
  require_service();
  // A single request may have more inputs than the queue.
  const auto count = std::ssize(embedding->inputs_.sequences);
  if (waiting_embeddings_ > 0 && waiting_embeddings_ + count > options_.queue)
    throw Refusal(429, "too many requests are waiting; try again later");
  waiting_embeddings_ += count;
  new_embeddings_.push_back(embedding);
  asked_.notify_all();
  return embedding;
}

void Scheduler::require_service() const {
  if (is_draining_) throw Refusal(503, "the server is shutting down");
  if (!broken_.empty()) throw Refusal(503, broken_);
}

void Scheduler::drain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
  asked_.notify_all();
}

ServeNumbers Scheduler::numbers(int64_t set) const {
  const std::lock_guard lock(mutex_);
  return numbers_.at(set);
}

bool Scheduler::is_idle() {
  const std::lock_guard lock(mutex_);
  return open_.empty() && embeddings_.empty() && new_.empty() && new_embeddings_.empty();
}

// Takes new requests from the queue; if there is no work, waits up to `wait` seconds for one. False if there is no work
// and the scheduler is draining.
bool Scheduler::take_new(double wait) {
  std::unique_lock lock(mutex_);
  if (open_.empty() && embeddings_.empty() && new_.empty() && new_embeddings_.empty()) {
    if (is_draining_) return false;
    if (wait > 0) asked_.wait_for(lock, for_seconds(wait));
  }
  open_.splice(open_.end(), new_);
  embeddings_.splice(embeddings_.end(), new_embeddings_);
  return true;
}

// Starts outputs in the free slots: each time that of the request with the fewest running outputs, the oldest request
// first. Where prompts share steps, all slots are filled, so that a burst of requests is read in full steps; elsewhere
// one prompt is read at a time, and a later request with fewer running outputs may come before the others.
void Scheduler::begin_outputs() {
  if (!batch_) return;
  const auto begin_next = [&] {
    if (batch_->waiting() + batch_->running() >= options_.parallel) return false;
    std::shared_ptr<Open> least;
    for (const auto& open : open_)
      if (!open->is_over && open->next < open->count() && open->is_seen() &&
          (!least || open->running.size() < least->running.size()))
        least = open;
    if (least) begin_output(least);
    return least != nullptr;
  };
  if (batch_->waiting() > 0) return;
  while (begin_next() && batch_->shares_steps()) {
  }
}

void Scheduler::begin_output(const std::shared_ptr<Open>& open) {
  const int64_t index = open->next++;
  const GenerationRequest& request = open->request;
  const size_t prompt = index / request.n;
  Delta& fresh = open->fresh[index];
  fresh.index = index;
  const int64_t top = request.top;
  if (request.echo) fresh.text = request.echoed[prompt];
  infer::SequenceOrder order;
  order.prompt = request.prompts[prompt];
  order.set = request.set;
  for (const AskedPicture& one : request.pictures) order.pictures.push_back(one.picture);
  order.sampling = request.sampling;
  order.sampling.seed += uint32_t(index % request.n);
  order.generate = request.generate;
  order.generate.draft = options_.draft.most;
  order.expected = request.expected;
  order.constraint = request.constraint;
  order.show = [&fresh](std::string_view text) { fresh.text += text; };
  order.drawn = [open, &fresh, top](text::TokenId id, const infer::LogitRow& row, bool is_end) {
    if (!open->has_begun) open->first = Clock::now();
    open->has_begun = true;
    // Completions include the end token's logprobs, so their number equals completion_tokens. Chats only have those of
    // the content.
    if (top >= 0 && !(is_end && open->request.is_chat)) fresh.tokens.emplace_back(chance_of(row, id, top));
    if (open->request.watched.empty()) return;
    TokenChance chances = chance_of(row, id, 0);
    for (const text::TokenId watched : open->request.watched)
      chances.top.emplace_back(watched, chance_of(row, watched, 0).chance);
    fresh.tokens.emplace_back(std::move(chances));
  };
  if (request.echo && top >= 0) {
    fresh.tokens.emplace_back(std::nullopt);
    fresh.first = order.prompt[0];
    order.read = [open, &fresh, top, prompt, at = size_t{0}](std::span<const float> logits) mutable {
      const std::vector<text::TokenId>& tokens = open->request.prompts[prompt];
      if (++at < tokens.size()) fresh.tokens.emplace_back(chance_of(logits, tokens[at], top));
    };
  }
  const auto leave = [this, open, index] {
    std::erase_if(open->running, [&](const auto& r) { return r.first == index; });
    ++open->ended;
    const std::lock_guard lock(mutex_);
    --outputs_;
  };
  order.done = [this, open, &fresh, leave](const infer::ManyAnswer& answer) {
    leave();
    fresh.ended = true;
    fresh.answer = answer;
    open->made += answer.made;
    const std::lock_guard lock(mutex_);
    ServeNumbers& numbers = numbers_[open->set()];
    numbers.prompt_tokens += answer.read + answer.shared;
    numbers.cached_tokens += answer.shared;
    numbers.disk_tokens += answer.from_disk;
    numbers.generation_tokens += answer.made;
    numbers.drafted_tokens += answer.drafted;
    numbers.accepted_tokens += answer.accepted;
  };
  order.failed = [this, open, leave](const Error& error) {
    leave();
    open->is_over = true;
    const std::string why = broken();
    open->answering->fail(why.empty() ? 400 : 503, why.empty() ? error.what() : why);
  };
  open->running.emplace_back(index, batch_->add(std::move(order)));
}

// Ends requests; requests that ran out of time are marked so and keep their output.
void Scheduler::end_some(const std::function<bool(const Open&)>& which, bool out_of_time) {
  for (const auto& open : open_) {
    if (!which(*open)) continue;
    while (!open->running.empty()) {
      const auto [index, number] = open->running.back();
      open->fresh[index].out_of_time = out_of_time;
      LUMEN_CHECK(batch_->remove(number));
    }
    const int64_t left = open->count() - open->next;
    for (; open->next < open->count(); ++open->next, ++open->ended) {
      Delta& fresh = open->fresh[open->next];
      fresh.index = open->next;
      fresh.ended = true;
      fresh.out_of_time = out_of_time;
    }
    open->is_over = true;
    const std::lock_guard lock(mutex_);
    outputs_ -= left;
  }
}

void Scheduler::look_at_clients() {
  const auto now = Clock::now();
  std::vector<int64_t> cancelled, late;  // adapter sets of these requests
  const auto is_cancelled = [&](const Open& open) {
    const bool yes = !open.is_over && open.answering->cancelled_ != CancelReason::none;
    if (yes) cancelled.push_back(open.set());
    return yes;
  };
  const auto is_late = [&](const Open& open) {
    const bool yes = !open.is_over && since(open.begin, now) > options_.seconds;
    if (yes) late.push_back(open.set());
    return yes;
  };
  end_some(is_cancelled, false);
  end_some(is_late, true);
  end_some([](const Open& open) { return open.is_over && open.ended < open.count(); }, false);
  if (cancelled.empty() && late.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const int64_t set : cancelled) ++numbers_[set].cancelled;
  for (const int64_t set : late) ++numbers_[set].out_of_time;
}

// Passes new output to the clients, and removes finished requests.
void Scheduler::hand_over() {
  const auto now = Clock::now();
  for (auto at = open_.begin(); at != open_.end();) {
    Open& open = **at;
    for (int64_t i = 0; i < open.next; ++i) {
      Delta& fresh = open.fresh[i];
      if (fresh.text.empty() && fresh.tokens.empty() && !fresh.ended) continue;
      Delta next;
      next.index = i;
      open.answering->put(std::exchange(fresh, std::move(next)));
    }
    if (open.ended < open.count()) {
      ++at;
      continue;
    }
    const std::lock_guard lock(mutex_);
    ServeNumbers& numbers = numbers_[open.set()];
    numbers.whole.add(since(open.begin, now));
    if (open.has_begun) numbers.first_token.add(since(open.begin, open.first));
    if (open.made > open.count())
      numbers.each_token.add(since(open.first, now) * double(open.count()) / double(open.made - open.count()));
    at = open_.erase(at);
  }
}

// Has the rows of one picture made that a request waits for, so that running sequences wait for one picture at most.
void Scheduler::see() {
  for (const auto& open : open_) {
    if (open->is_over) continue;
    for (AskedPicture& one : open->request.pictures) {
      if (one.picture) continue;
      try {
        one.picture = seen(*one.prepared);
        std::vector<text::TokenId>& prompt = open->request.prompts.at(0);
        for (size_t row = 0; row < one.places.size(); ++row) prompt.at(one.places[row]) = one.picture->ids.at(row);
        one.prepared.reset();
      } catch (const Error& error) {
        const std::string why = broken();
        open->answering->fail(why.empty() ? 500 : 503, why.empty() ? error.what() : why);
        open->is_over = true;
        const std::lock_guard lock(mutex_);
        ++numbers_[open->set()].failed;
      }
      return;
    }
  }
}

// Clients send the pictures of a conversation again with each message, so the latest ones are kept with their rows.
infer::PictureRef Scheduler::seen(const infer::PreparedPicture& picture) {
  const auto at = std::find_if(seen_.begin(), seen_.end(), [&](const auto& one) { return one->hash == picture.hash; });
  if (at != seen_.end())
    seen_.splice(seen_.begin(), seen_, at);
  else
    seen_.push_front(options_.tower->hold(picture, loaded_.pictures(), infer::picture_width(loaded_.model())));
  infer::PictureRef out = seen_.front();
  int64_t bytes = 0;
  for (auto one = seen_.begin(); one != seen_.end();) {
    bytes += std::ssize((*one)->rows) * int64_t{sizeof(float)};
    one = bytes > options_.picture_bytes ? seen_.erase(one) : std::next(one);
  }
  return out;
}

void Scheduler::fail_all(int status, const std::string& message) {
  for (const auto& open : open_) {
    if (open->ended < open->count()) open->answering->fail(status, message);
    open->is_over = true;
  }
  end_some([](const Open& open) { return open.ended < open.count(); }, false);
}

void Scheduler::step() {
  if (!batch_) return;
  try {
    batch_->step();
  } catch (const Error& error) {
    look_at_files();  // a modified file may be the cause
    fail_all(500, error.what());
    const std::lock_guard lock(mutex_);
    for (const auto& open : open_) ++numbers_[open->set()].failed;
  }
}

// Why the model's files have changed; empty if they are unchanged.
std::string Scheduler::broken() const {
  if (!options_.require_whole) return {};
  try {
    options_.require_whole();
    return {};
  } catch (const Error& error) {
    return fmt::format("{}; its model is not served until the server is restarted", error.what());
  }
}

// If a file of the model has been truncated, no computed result is sent.
void Scheduler::look_at_files() {
  const std::string why = broken();
  if (why.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (broken_.empty()) warn(why);
    broken_ = why;
    open_.splice(open_.end(), new_);
    embeddings_.splice(embeddings_.end(), new_embeddings_);
    for (const auto& open : open_) ++numbers_[open->set()].failed;
  }
  fail_all(503, why);
  for (const auto& embedding : embeddings_) {
    embedding->fail(503, why);
    embedding->is_cancelled_ = true;
  }
}

// Embeds a few inputs of the first request in the queue; the batch continues between these calls.
void Scheduler::embed() {
  if (embeddings_.empty()) return;
  Embedding& first = *embeddings_.front();
  const size_t done = first.vectors_.size(), all = first.inputs_.sequences.size();
  const size_t count = std::min<size_t>(kVectorsAtOnce, all - done);
  bool over = first.is_cancelled_;
  int64_t tokens = 0;
  if (!over) {
    try {
      const auto some = std::span<const std::vector<text::TokenId>>(first.inputs_.sequences).subspan(done, count);
      for (const auto& input : some) tokens += std::ssize(input);
      if (!first.inputs_.seconds.empty()) {
        for (const float score : scorer_->scores_of(first.inputs_, done, done + count, first.set_))
          first.vectors_.push_back({score});
      } else {
        auto vectors = embedder_->embed_all(some, options_.pooling, {}, first.set_);
        for (infer::Embedder::Vectors& one : vectors) {
          infer::normalise(one.at(0), 2);
          first.vectors_.push_back(std::move(one.at(0)));
        }
      }
      over = first.vectors_.size() == all;
    } catch (const Error& error) {
      look_at_files();  // a modified file may be the cause
      first.fail(500, error.what());
      over = true;
    }
  }
  look_at_files();  // before the vectors become visible to the client
  if (over) {
    const std::lock_guard lock(first.mutex_);
    first.is_done_ = true;
    first.changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  numbers_[first.set_].embedded_tokens += tokens;
  waiting_embeddings_ -= over ? int64_t(all - done) : int64_t(count);
  if (over) embeddings_.pop_front();
}

void Scheduler::count() {
  const std::lock_guard lock(mutex_);
  if (!batch_) return;
  std::vector<int64_t> outputs(numbers_.size());  // requested and not ended, by adapter set
  for (const auto* list : {&open_, &new_})
    for (const auto& open : *list) outputs[open->set()] += open->count() - open->ended;
  for (size_t set = 0; set < numbers_.size(); ++set) {
    ServeNumbers& numbers = numbers_[set];
    numbers.running = batch_->running_with(int64_t(set));
    numbers.waiting = outputs[set] - numbers.running;
    numbers.free_pages = batch_->session().free_pages();
    numbers.put_back = batch_->put_back_count(int64_t(set));
  }
}

bool Scheduler::round(double wait) {
  if (!take_new(wait)) return false;
  look_at_clients();
  see();
  begin_outputs();
  step();
  embed();
  if (!open_.empty() || !embeddings_.empty()) look_at_files();
  hand_over();
  count();
  return true;
}

void Scheduler::run(const std::function<bool()>& go_on) {
  Scheduler* const alone[] = {this};
  run_in_turn(alone, go_on);
}

// Compiles a step while there are no requests. False if there is nothing to compile.
bool Scheduler::prepare() {
  if (!batch_ || !options_.prepares.value_or(false)) return false;
  try {
    if (batch_->prepare()) return true;
  } catch (const Error&) {  // a request that needs the step gets the error
  }
  options_.prepares = false;
  return false;
}

void Scheduler::run_in_turn(std::span<Scheduler* const> all, const std::function<bool()>& go_on) {
  while (go_on()) {
    const bool idle = std::all_of(all.begin(), all.end(), [](Scheduler* one) { return one->is_idle(); });
    const bool compiled = idle && std::any_of(all.begin(), all.end(), [](Scheduler* one) { return one->prepare(); });
    double wait = !idle || compiled ? 0 : all.size() == 1 ? kIdle : kIdleInTurn;
    bool goes_on = false;
    for (Scheduler* one : all) {
      goes_on |= one->round(wait);
      wait = 0;
    }
    if (!goes_on) return;
  }
  for (Scheduler* one : all) one->end();
}

void Scheduler::end() {
  drain();
  take_new(0);
  for (const auto& open : open_) open->answering->fail(503, "the server is shutting down");
  for (const auto& embedding : embeddings_) embedding->fail(503, "the server is shutting down");
  end_some([](const Open& open) { return open.ended < open.count(); }, false);
  hand_over();
  embeddings_.clear();
  count();
}

}  // namespace lumen::model::serve
