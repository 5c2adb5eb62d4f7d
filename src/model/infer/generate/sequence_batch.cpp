#include "model/infer/generate/sequence_batch.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::infer {
namespace {

int64_t same_beginning(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

SequenceBatch::SequenceBatch(const LoadedModel& loaded, SessionOptions session, ManyLimits limits, int64_t parallel)
    : loaded_(loaded),
      tokenizer_(*loaded.model().tokenizer),
      chunk_(session.chunk),
      vocabulary_(loaded.model().integer("vocab")),
      longest_(many_limits(loaded, session_options(loaded.model(), session), limits).longest),
      parallel_(parallel),
      most_kept_(limits.kept),
      session_(loaded, std::move(session), limits),
      forbidden_(never_drawn(tokenizer_, loaded.model().integer("vocab"), false)),
      forbidden_with_ends_(never_drawn(tokenizer_, loaded.model().integer("vocab"), true)),
      limit_(parallel),
      put_back_(loaded.sets()) {
  LUMEN_CHECK(parallel >= 1);
  longest_ = std::min(longest_, session_.pages() * session_.page_size());
}

bool SequenceBatch::keep_in(std::shared_ptr<PrefixFiles> files, std::function<void()> require_whole) {
  if (!KeptPrefixes::can_keep(session_)) return false;
  prefixes_ = std::make_unique<KeptPrefixes>(loaded_, session_, std::move(files), std::move(require_whole));
  return true;
}

uint64_t SequenceBatch::add(SequenceOrder order) {
  LUMEN_CHECK(order.set >= 0 && order.set < std::ssize(put_back_), "no adapter set {}", order.set);
  if (order.prompt.empty()) throw usage_error("a prompt is empty");
  if (std::ssize(order.prompt) > longest_)
    throw Error(Exit::user,
                fmt::format("a prompt has {} tokens, but the context holds {}", order.prompt.size(), longest_),
                "shorten the prompt, or raise --ctx-size");
  if (order.most == 0) order.most = longest_;
  const auto size = std::ssize(order.prompt);
  auto t = std::make_unique<Sequence>();
  t->number = next_number_++;
  t->order = std::move(order);
  t->pending = t->order.prompt;
  if (t->order.expected) t->expected.emplace(t->order.expected, size);
  waiting_.push_back(std::move(t));
  return waiting_.back()->number;
}

int64_t SequenceBatch::running_with(int64_t set) const {
  return std::count_if(active_.begin(), active_.end(), [&](const auto& t) { return t->order.set == set; });
}

bool SequenceBatch::remove(uint64_t number) {
  for (Sequences* list : {&active_, &waiting_}) {
    for (auto t = list->begin(); t != list->end(); ++t) {
      if ((*t)->number != number) continue;
      if (!(*t)->answer) begin(**t);
      (*t)->answer->end(EndReason::interrupted);
      if (list == &waiting_) {
        active_.splice(active_.end(), waiting_, t);
        t = std::prev(active_.end());
      }
      finish(t);
      return true;
    }
  }
  return false;
}

void SequenceBatch::remove_all() {
  while (!active_.empty()) remove(active_.front()->number);
  while (!waiting_.empty()) remove(waiting_.front()->number);
}

// The longest prefix of the pending tokens of `t` that is cached by a sequence with the same adapters, and that
// sequence (-1: none). The last token is always computed, because its logits are needed. `common`: the longest prefix
// that a sequence begins with, whether it can be shared or not.
std::pair<int64_t, int> SequenceBatch::known(const Sequence& t, int64_t* common) const {
  const std::vector<text::TokenId>& tokens = t.pending;
  std::pair<int64_t, int> best{0, -1};
  *common = 0;
  const auto look = [&](int sequence) {
    if (session_.set(sequence) != t.order.set) return;
    const int64_t same = std::min<int64_t>(same_beginning(tokens, session_.tokens(sequence)), tokens.size() - 1);
    *common = std::max(*common, same);
    const int64_t count = session_.shareable(sequence, same);
    if (count > best.first) best = {count, sequence};
  };
  for (const auto& other : active_) look(other->sequence);
  for (const int sequence : kept_) look(sequence);
  return best;
}

// Whether an active sequence is about to compute more of that prefix than is cached so far: waiting for it avoids
// computing the prefix twice.
bool SequenceBatch::is_being_read(const Sequence& t) const {
  const std::vector<text::TokenId>& tokens = t.pending;
  return std::any_of(active_.begin(), active_.end(), [&](const auto& other) {
    if (other->pending.size() < 2 || other->order.set != t.order.set) return false;
    const std::vector<text::TokenId>& read = session_.tokens(other->sequence);
    const int64_t first = same_beginning(tokens, read);
    if (first < std::ssize(read) || first >= std::ssize(tokens)) return false;
    return same_beginning(std::span(tokens).subspan(first), other->pending) >= session_.page_size();
  });
}

// Admits the next waiting sequence if there are free pages for its prompt, and for one more page of each active
// sequence.
bool SequenceBatch::admit() {
  if (waiting_.empty() || std::ssize(active_) >= limit_) return false;
  Sequence& t = *waiting_.front();
  const bool shares = !is_scored(t);
  if (shares && is_being_read(t)) return false;
  std::pair<int64_t, int> from{0, -1};
  for (;;) {
    if (shares) from = known(t, &t.common);
    const int64_t size = session_.page_size();
    const int64_t pages = (std::ssize(t.pending) + size - 1) / size - from.first / size;
    if (active_.empty() || pages + unread_pages() + std::ssize(active_) <= session_.free_pages()) break;
    if (!drop_kept()) return false;
  }
  const bool again = t.answer != nullptr;
  if (!again) begin(t);
  t.sequence = session_.open(t.order.set);
  int64_t shared = from.second >= 0 ? session_.share(from.second, t.sequence, from.first) : 0;
  const int64_t from_disk = shares && prefixes_ ? prefixes_->restore(t.sequence, t.pending) : 0;
  shared += from_disk;
  const int64_t left = std::ssize(t.pending) - shared;
  if (again) {
    t.out.again += left;
  } else {
    t.out.shared = shared;
    t.out.from_disk = from_disk;
    t.out.read = left;
  }
  t.pending.erase(t.pending.begin(), t.pending.begin() + shared);
  active_.splice(active_.end(), waiting_, waiting_.begin());
  return true;
}

// Pages that the remaining prompt tokens of active sequences will take, if several prompts are admitted at once.
int64_t SequenceBatch::unread_pages() const {
  int64_t pages = 0;
  if (session_.most_mixed() > 0)
    for (const auto& t : active_)
      if (t->pending.size() > 1) pages += session_.missing_pages(t->sequence, t->pending.size());
  return pages;
}

void SequenceBatch::begin(Sequence& t) {
  SamplerOptions sampling = t.order.sampling;
  const auto& never = t.order.generate.ignore_end ? forbidden_with_ends_ : forbidden_;
  sampling.forbidden.insert(sampling.forbidden.end(), never.begin(), never.end());
  t.sampler = std::make_unique<Sampler>(std::move(sampling));
  for (const text::TokenId id : t.pending)
    if (!is_picture(id)) t.sampler->accept(id);
  if (t.order.constraint) t.matcher = std::make_unique<GrammarMatcher>(t.order.constraint->states);
  const auto show = t.order.show ? t.order.show : Answer::Show([](std::string_view) {});
  t.answer = std::make_unique<Answer>(tokenizer_, t.order.generate, *t.sampler, t.order.constraint.get(),
                                      t.matcher.get(), show);
}

// The sequence with a prompt left to compute that was served least recently.
SequenceBatch::Sequence* SequenceBatch::next_to_read() {
  Sequence* best = nullptr;
  for (const auto& t : active_)
    if ((t->pending.size() > 1 || is_scored(*t)) && (!best || t->served < best->served)) best = t.get();
  return best;
}

// Pages that the next step will take.
int64_t SequenceBatch::missing(const Sequence* reading) const {
  int64_t pages = 0;
  for (const auto& t : active_) {
    const bool reads = t->pending.size() > 1 || is_scored(*t);
    if (reads && t.get() != reading) continue;
    pages += session_.missing_pages(t->sequence, std::min<int64_t>(t->pending.size(), chunk_));
  }
  return pages;
}

bool SequenceBatch::drop_kept() {
  if (kept_.empty()) return false;
  session_.close(kept_.back());
  kept_.pop_back();
  return true;
}

// Preempts the sequence that was admitted last: the others get its pages, and it is recomputed when there is room.
void SequenceBatch::put_back() {
  LUMEN_CHECK(active_.size() > 1, "the only sequence has no room");
  Sequence& t = *active_.back();
  std::vector<text::TokenId> whole = session_.tokens(t.sequence);
  whole.insert(whole.end(), t.pending.begin(), t.pending.end());
  t.pending = std::move(whole);
  session_.close(t.sequence);
  t.sequence = -1;
  if (draft_) draft_->forget(t.number);
  waiting_.splice(waiting_.begin(), active_, std::prev(active_.end()));
  limit_ = std::ssize(active_);  // until a sequence ends
  ++put_back_[t.order.set];
}

// Keeps the pages of an ended sequence as a prefix cache; kept sequences that are a prefix of it are closed.
void SequenceBatch::keep(int sequence) {
  const std::vector<text::TokenId>& tokens = session_.tokens(sequence);
  if (prefixes_) prefixes_->save(sequence);
  if (most_kept_ == 0 || std::ssize(tokens) < session_.page_size()) return session_.close(sequence);
  std::erase_if(kept_, [&](int old) {
    const std::vector<text::TokenId>& theirs = session_.tokens(old);
    if (session_.set(old) != session_.set(sequence)) return false;
    if (same_beginning(theirs, tokens) < std::ssize(theirs)) return false;
    session_.close(old);
    return true;
  });
  kept_.push_front(sequence);
  if (std::ssize(kept_) > most_kept_) drop_kept();
}

SequenceBatch::Sequences::iterator SequenceBatch::finish(Sequences::iterator at, const Error* error) {
  const std::unique_ptr<Sequence> t = std::move(*at);
  const auto next = active_.erase(at);
  if (t->sequence >= 0) keep(t->sequence);
  if (draft_) draft_->forget(t->number);
  limit_ = parallel_;
  if (error) {
    t->order.failed(*error);
    return next;
  }
  t->out.reason = t->answer->finish();
  t->out.stop = t->answer->stop();
  t->out.text = t->answer->text();
  t->out.made = t->answer->made();
  if (t->order.done) t->order.done(t->out);
  return next;
}

bool SequenceBatch::step() {
  if (active_.empty() && waiting_.empty()) return false;
  ++step_;
  if (!admit()) LUMEN_CHECK(!active_.empty(), "no sequence fits");
  while (session_.most_mixed() > 0 && admit()) {
  }
  Sequence* reading = next_to_read();
  while (missing(reading) > session_.free_pages()) {
    if (drop_kept()) continue;
    put_back();
    reading = next_to_read();
  }
  feed(reading);
  return true;
}

}  // namespace lumen::model::infer
