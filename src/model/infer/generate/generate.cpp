#include "model/infer/generate/generate.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"

namespace lumen::model::infer {
namespace {

SamplerOptions drawable(SamplerOptions sampling, const arch::Model& model, bool ignore_end) {
  for (const text::TokenId id : never_drawn(*model.tokenizer, model.integer("vocab"), ignore_end))
    sampling.forbidden.push_back(id);
  return sampling;
}

}  // namespace

Generator::Generator(const LoadedModel& loaded, SessionOptions session, SamplerOptions sampling,
                     GenerateOptions options, std::unique_ptr<Draft> draft)
    : tokenizer_(*loaded.model().tokenizer),
      session_(loaded, session),
      options_(std::move(options)),
      sampler_(drawable(std::move(sampling), loaded.model(), options_.ignore_end)),
      draft_(std::move(draft)) {
  if (options_.grammar.empty()) return;
  constraint_.emplace(tokenizer_, options_.grammar);
  matcher_.emplace(constraint_->states);
}

// Context shift: drops tokens after the first `keep`, until `wanted` more fit; the remaining ones are recomputed.
void Generator::make_room(size_t wanted) {
  const size_t context = session_.context();
  size_t keep = std::min(tokens_.size(), static_cast<size_t>(std::max<int64_t>(0, options_.keep)));
  if (keep + wanted >= context) keep = 0;
  // Drops half of the tokens that may be dropped, so that a shift is not needed for each token.
  size_t drop = (tokens_.size() - keep + 1) / 2;
  const size_t needed = tokens_.size() + wanted > context ? tokens_.size() + wanted - context : 0;
  drop = std::min(std::max(drop, needed), tokens_.size() - keep);
  // Pictures go or stay as a whole.
  const size_t begin = keep;
  while (keep > 0 && keep < tokens_.size() && is_picture(tokens_[keep]) && is_picture(tokens_[keep - 1])) --keep;
  drop += begin - keep;
  while (drop > 0 && keep + drop < tokens_.size() && is_picture(tokens_[keep + drop - 1]) &&
         is_picture(tokens_[keep + drop]))
    ++drop;
  tokens_.erase(tokens_.begin() + keep, tokens_.begin() + keep + drop);
  session_.rewind(std::min<int64_t>(session_.position(), keep));
}

// Penalties count a prompt's text; rows of pictures have no words.
void Generator::accept(std::span<const text::TokenId> prompt) {
  for (const text::TokenId id : prompt)
    if (!is_picture(id)) sampler_.accept(id);
}

// Removes rejected draft tokens.
void Generator::settle() {
  ahead_.clear();
  if (session_.position() > std::ssize(tokens_)) session_.rewind(tokens_.size());
}

// Appends tokens and computes all that are not computed yet.
LogitRow Generator::feed(std::span<const text::TokenId> tokens) {
  settle();
  if (tokens_.empty()) session_.prepare(tokens.size());
  if (static_cast<int64_t>(tokens_.size() + tokens.size()) > session_.context() && options_.shift &&
      std::ssize(tokens) < session_.context())
    make_room(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return session_.feed_row(std::span(tokens_).subspan(session_.position()), sampler_.asked(session_.vocabulary()));
}

// Appends one token and returns its logits. If the draft proposed this token, they have been computed already;
// otherwise they are computed now, together with the draft's next proposal.
LogitRow Generator::advance(text::TokenId id, int64_t wanted, Result* counts) {
  const size_t vocab = session_.vocabulary();
  const size_t at = tokens_.size();
  if (at < ahead_.size() && ahead_[at] == id) {
    tokens_.push_back(id);
    ++counts->accepted;
    return std::span<const float>(rows_).subspan((at - ahead_from_) * vocab, vocab);
  }
  settle();
  const auto room = std::min(session_.context() - static_cast<int64_t>(at) - 1, wanted);
  // Drafts are made of text alone.
  if (!draft_ || room < 1 || has_pictures(tokens_)) return feed({&id, 1});
  tokens_.push_back(id);
  std::vector<text::TokenId> proposed = draft_->propose(tokens_, std::min(options_.draft, room));
  // Without a proposal this is a normal step.
  if (proposed.empty())
    return session_.feed_row(std::span(tokens_).subspan(session_.position()), sampler_.asked(session_.vocabulary()));
  counts->drafted += proposed.size();
  LUMEN_CHECK(session_.position() == static_cast<int64_t>(at));
  proposed.insert(proposed.begin(), id);
  const std::span<const float> rows = session_.feed_all(proposed);
  rows_.assign(rows.begin(), rows.end());
  ahead_ = tokens_;
  ahead_.insert(ahead_.end(), proposed.begin() + 1, proposed.end());
  ahead_from_ = at;
  return std::span<const float>(rows_).first(vocab);
}

Generator::Result Generator::answer(std::span<const text::TokenId> prompt, bool whole,
                                    const std::function<void(std::string_view)>& show,
                                    const std::function<bool()>& go_on) {
  Result out;
  if (prompt.empty()) throw usage_error("the prompt is empty");
  settle();
  if (whole) {
    // The cached prefix is kept; the last token is always computed, because its logits are needed.
    const auto differ = std::mismatch(prompt.begin(), prompt.end(), tokens_.begin(), tokens_.end());
    size_t known = differ.first - prompt.begin();
    known = std::min({known, prompt.size() - 1, static_cast<size_t>(session_.position())});
    tokens_.resize(known);
    session_.rewind(known);
    sampler_.forget();
    accept(prompt);
    prompt = prompt.subspan(known);
  } else {
    accept(prompt);
  }
  if (options_.keep < 0 && tokens_.empty()) options_.keep = prompt.size();
  if (matcher_) matcher_->restart();
  Stopwatch watch;
  const int64_t before = session_.position();
  LogitRow row = feed(prompt);
  out.read = session_.position() - before;
  out.read_seconds = watch.seconds();
  Answer answer(tokenizer_, options_, sampler_, constraint_ ? &*constraint_ : nullptr, matcher_ ? &*matcher_ : nullptr,
                show);
  watch.restart();
  for (;;) {
    if (!go_on()) {
      answer.end(EndReason::interrupted);
      break;
    }
    const std::optional<text::TokenId> id = answer.draw(row);
    if (!id) break;
    const bool full = std::ssize(tokens_) + 1 > session_.context();
    if (full && (!options_.shift || options_.predict == -2)) answer.end(EndReason::context);
    if (answer.ended()) {
      // The last token is part of the output but not computed: its logits are not needed.
      settle();
      tokens_.push_back(*id);
      break;
    }
    const int64_t left = options_.predict >= 0 ? options_.predict - answer.made() : session_.context();
    row = advance(*id, left - 1, &out);
  }
  settle();
  out.reason = answer.finish();
  out.text = answer.text();
  out.made = answer.made();
  out.made_seconds = watch.seconds();
  return out;
}

}  // namespace lumen::model::infer
