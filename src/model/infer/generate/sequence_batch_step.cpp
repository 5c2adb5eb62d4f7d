// The inputs of a batch's step, and the use of its logits.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "model/infer/generate/choose.h"
#include "model/infer/generate/sequence_batch.h"

namespace lumen::model::infer {
namespace {

// The longest context at which a prompt's chunk may share a step with other sequences: each token of such a step reads
// the whole KV cache of its sequence. At this length that takes at most a fifth of a step of 512 tokens with eight
// billion weights, as computed for an H100; a separate step would delay the other sequences more.
constexpr int64_t kNear = 1024;

}  // namespace

// The tokens of each sequence in a step: its next token, followed by draft tokens within the step's rows, the free
// pages that no other sequence needs, and the sequence's maximum length.
std::vector<std::vector<text::TokenId>> SequenceBatch::next_tokens(const std::vector<Sequence*>& sequences,
                                                                   const Sequence* reading) {
  std::vector<std::vector<text::TokenId>> out;
  for (const Sequence* t : sequences) out.push_back(t->pending);
  int64_t rows = session_.rows() - std::ssize(sequences), pages = session_.free_pages() - missing(reading);
  std::vector<std::vector<text::TokenId>> whole;
  std::vector<DraftRequest> requests;  // for the shared draft
  std::vector<size_t> owners;
  const auto take = [&](size_t i, const std::vector<text::TokenId>& proposed) {
    out[i].insert(out[i].end(), proposed.begin(), proposed.end());
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& t = *sequences[i];
    const int64_t length = session_.length(t.sequence);
    int64_t most = std::min({t.order.generate.draft, rows / (std::ssize(sequences) - int64_t(i)),
                             std::min(t.order.most, longest_) - length - 1});
    if (t.order.generate.predict >= 0) most = std::min(most, t.order.generate.predict - t.answer->made() - 1);
    if (most < 1 || (!draft_ && !t.expected)) continue;
    if (!t.order.pictures.empty()) continue;  // drafts are made of text alone
    most = t.pace.next(most);
    const int64_t alone = session_.missing_pages(t.sequence, 1);
    while (most > 0 && session_.missing_pages(t.sequence, 1 + most) - alone > pages) --most;
    if (most < 1) continue;
    std::vector<text::TokenId> tokens = session_.tokens(t.sequence);
    tokens.push_back(t.pending.back());
    std::vector<text::TokenId> proposed;
    if (t.expected) proposed = t.expected->propose(tokens, most);
    if (proposed.empty() && !draft_) continue;
    if (!proposed.empty()) most = std::ssize(proposed);
    rows -= most;
    pages -= session_.missing_pages(t.sequence, 1 + most) - alone;
    if (!proposed.empty()) {
      take(i, proposed);
      continue;
    }
    whole.push_back(std::move(tokens));
    requests.push_back({t.number, {}, most});
    owners.push_back(i);
  }
  if (requests.empty()) return out;
  for (size_t w = 0; w < requests.size(); ++w) requests[w].tokens = whole[w];
  const std::vector<std::vector<text::TokenId>> proposed = draft_->propose(requests);
  for (size_t w = 0; w < requests.size(); ++w) take(owners[w], proposed[w]);
  return out;
}

// Computes a chunk of a prompt. Returns the logits of the prompt's last token if the chunk includes it.
std::optional<LogitRow> SequenceBatch::read_some(Sequence& t) {
  auto count = std::min<int64_t>(std::ssize(t.pending), chunk_);
  if (session_.is_recurrent()) {
    // Recurrent states can be shared where a chunk ends: at the end of a prefix that other prompts have, too, where
    // they are stored in files, and before the last token, which is then computed together with the next tokens of
    // other sequences.
    const int64_t length = session_.length(t.sequence);
    const int64_t stored = prefixes_ ? prefixes_->mark_of(length + std::ssize(t.pending)) : 0;
    for (const int64_t end : {t.common, stored})
      if (end > length && end < length + count) count = end - length;
    if (count == std::ssize(t.pending)) --count;
  }
  const bool is_last = count == std::ssize(t.pending);
  const std::vector<text::TokenId> some(t.pending.begin(), t.pending.begin() + count);
  const ManySession::Part part{t.sequence, some};
  const Asked asked = is_last ? t.sampler->asked(vocabulary_) : Asked{};
  const std::vector<LogitRow> rows = session_.feed_rows({&part, 1}, {&asked, 1});
  t.pending.erase(t.pending.begin(), t.pending.begin() + count);
  if (!is_last) return std::nullopt;
  return rows.at(0);
}

void SequenceBatch::feed(Sequence* reading) {
  std::vector<Sequence*> ready;  // decoding sequences, whose logits are needed
  for (const auto& t : active_)
    if (t.get() != reading && t->pending.size() == 1 && !is_scored(*t)) ready.push_back(t.get());
  const std::vector<std::vector<text::TokenId>> fed = next_tokens(ready, reading);
  const bool drafts = std::ranges::any_of(fed, [](const auto& tokens) { return tokens.size() > 1; });
  if (const std::vector<Reading> read = mixed(reading, std::ssize(ready)); !read.empty() && !drafts)
    return feed_mixed(read, ready);
  std::optional<LogitRow> behind;  // logits of the prompt's last token
  if (reading) {
    reading->served = step_;
    if (is_scored(*reading))
      score(*reading);
    else
      behind = read_some(*reading);
  }
  std::vector<ManySession::Part> parts;
  std::vector<Asked> asked;
  for (size_t i = 0; i < ready.size(); ++i) {
    parts.push_back({ready[i]->sequence, fed[i]});
    asked.push_back(ready[i]->sampler->asked(vocabulary_));
  }
  std::vector<LogitRow> rows;
  if (!parts.empty()) rows = session_.feed_apart(parts, asked);
  std::vector<Choice> choices;
  for (size_t i = 0, row = 0; i < ready.size(); row += fed[i].size(), ++i)
    choices.push_back({ready[i]->answer.get(), &rows[row]});
  if (behind) choices.push_back({reading->answer.get(), &*behind});
  choose_tokens(choices);
  size_t row = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    draw(*ready[i], fed[i], std::span(rows).subspan(row, fed[i].size()));
    row += fed[i].size();
  }
  if (behind) draw(*reading, {}, {&*behind, 1});
}

// The prompt chunks that share a step with `ready` decoding sequences; prompts served least recently come first. Empty
// if there is only one prompt and nothing else, or if the next prompt is too long for a mixed step.
std::vector<SequenceBatch::Reading> SequenceBatch::mixed(const Sequence* reading, int64_t ready) const {
  if (!reading || session_.most_mixed() == 0 || is_scored(*reading)) return {};
  std::vector<Sequence*> prompts;
  for (const auto& t : active_)
    if (t->pending.size() > 1 && !is_scored(*t)) prompts.push_back(t.get());
  std::ranges::stable_sort(prompts, {}, [](const Sequence* t) { return t->served; });
  int64_t room = session_.most_mixed() - ready, pages = session_.free_pages() - missing(reading);
  std::vector<Reading> out;
  for (Sequence* t : prompts) {
    const auto count = std::min(room, std::ssize(t->pending));
    if (count < 1) break;
    const bool is_near = session_.length(t->sequence) + count <= kNear;
    const int64_t more = t == reading ? 0 : session_.missing_pages(t->sequence, count);
    if (t == reading && !is_near) return {};
    if (!is_near || more > pages) continue;
    out.push_back({t, count});
    room -= count;
    pages -= more;
  }
  return ready == 0 && out.size() < 2 ? std::vector<Reading>() : out;
}

void SequenceBatch::feed_mixed(const std::vector<Reading>& read, const std::vector<Sequence*>& ready) {
  std::vector<std::vector<text::TokenId>> tokens;
  std::vector<Sequence*> asking;
  std::vector<Asked> asked;
  const auto ask = [&](Sequence* t) {
    asking.push_back(t);
    asked.push_back(t->sampler->asked(vocabulary_));
  };
  for (Sequence* t : ready) tokens.push_back(t->pending);
  for (const Reading& r : read) tokens.emplace_back(r.sequence->pending.begin(), r.sequence->pending.begin() + r.count);
  std::vector<ManySession::Part> parts;
  for (size_t i = 0; i < ready.size(); ++i) {
    parts.push_back({ready[i]->sequence, tokens[i]});
    ask(ready[i]);
  }
  for (size_t i = 0; i < read.size(); ++i) {
    Sequence* const t = read[i].sequence;
    const bool is_last = read[i].count == std::ssize(t->pending);
    parts.push_back({t->sequence, tokens[ready.size() + i], is_last});
    if (is_last) ask(t);
    t->served = step_;
  }
  const std::vector<LogitRow> rows = session_.feed_mixed(parts, asked);
  for (const Reading& r : read)
    r.sequence->pending.erase(r.sequence->pending.begin(), r.sequence->pending.begin() + r.count);
  std::vector<Choice> choices;
  for (size_t i = 0; i < asking.size(); ++i) choices.push_back({asking[i]->answer.get(), &rows[i]});
  choose_tokens(choices);
  for (size_t i = 0; i < asking.size(); ++i) draw(*asking[i], {}, {&rows[i], 1});
}

// Computes a chunk of a prompt and passes on the logits of all its tokens; a token is drawn from those of the prompt's
// last token.
void SequenceBatch::score(Sequence& t) {
  const auto count = std::min<int64_t>(std::ssize(t.pending), chunk_);
  const std::vector<text::TokenId> some(t.pending.begin(), t.pending.begin() + count);
  t.pending.erase(t.pending.begin(), t.pending.begin() + count);
  std::vector<float> last;
  int64_t behind = session_.length(t.sequence);
  session_.feed_all(t.sequence, some, [&](std::span<const float> logits) {
    ++behind;
    if (behind > t.scored) {  // not again after a preemption
      t.order.read(logits);
      t.scored = behind;
    }
    last.assign(logits.begin(), logits.end());
  });
  if (!t.pending.empty()) return;
  const LogitRow row(std::move(last));
  draw(t, {}, {&row, 1});
}

// Draws a token from each row, as long as it equals the draft token of the next row. `fed`: the tokens computed by the
// step, one per row; empty after a prompt.
void SequenceBatch::draw(Sequence& t, std::span<const text::TokenId> fed, std::span<const LogitRow> rows) {
  const auto at = std::find_if(active_.begin(), active_.end(), [&](const auto& a) { return a.get() == &t; });
  const auto drafted = std::ssize(rows) - 1;
  int64_t length = session_.length(t.sequence) - drafted;  // without draft tokens
  std::optional<Error> failure;
  for (size_t i = 0; i < rows.size(); ++i, ++length) {
    try {
      const std::optional<text::TokenId> id = t.answer->draw(rows[i]);
      const std::optional<text::TokenId> heard = id ? id : t.answer->end_token();
      if (heard && t.order.drawn) t.order.drawn(*heard, rows[i], !id);
      if (id && !t.answer->ended()) {
        t.pending = {*id};
        if (length + 1 > t.order.most) t.answer->end(EndReason::context);
      }
    } catch (const Error& error) {
      failure = error;
    }
    const bool agrees = !failure && !t.answer->ended() && i + 1 < rows.size() && t.pending.back() == fed[i + 1];
    if (!agrees) {
      t.out.drafted += drafted;
      t.out.accepted += int64_t(i);
      t.pace.learn(drafted, int64_t(i));
      break;
    }
  }
  if (!fed.empty()) session_.settle(t.sequence, length);
  if (failure) {
    if (!t.order.failed) throw Error(*failure);
    finish(at, &*failure);
  } else if (t.answer->ended()) {
    finish(at);
  }
}

}  // namespace lumen::model::infer
