#include "model/infer/generate.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::erase(texts_, std::string());
}

std::string StopTexts::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& t : texts_) first = std::min(first, held_.find(t));
  if (first != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, first);
  }
  // The longest end that is the beginning of a stop text waits.
  size_t wait = 0;
  for (const std::string& t : texts_) {
    for (size_t n = std::min(t.size() - 1, held_.size()); n > wait; --n) {
      if (std::string_view(held_).ends_with(std::string_view(t).substr(0, n))) wait = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - wait);
  held_.erase(0, held_.size() - wait);
  return out;
}

std::string StopTexts::finish() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

Generator::Generator(const LoadedModel& loaded, SessionOptions session, SamplerOptions sampling,
                     GenerateOptions options)
    : tokenizer_(*loaded.model().tokenizer),
      session_(loaded, session),
      options_(std::move(options)),
      sampler_(std::move(sampling)) {
  if (options_.grammar.empty()) return;
  matcher_.emplace(std::make_shared<const Grammar>(Grammar::parse(options_.grammar)));
  trie_ = generation_trie(tokenizer_, &texts_);
}

// Drops tokens behind the first `keep`, until `wanted` more fit; the rest is to be read again.
void Generator::make_room(size_t wanted) {
  const auto context = static_cast<size_t>(session_.context());
  size_t keep = std::min(tokens_.size(), static_cast<size_t>(std::max<int64_t>(0, options_.keep)));
  if (keep + wanted >= context) keep = 0;
  // Half of what may go, so that room is not to be made for each token.
  size_t drop = (tokens_.size() - keep + 1) / 2;
  const size_t needed = tokens_.size() + wanted > context ? tokens_.size() + wanted - context : 0;
  drop = std::min(std::max(drop, needed), tokens_.size() - keep);
  tokens_.erase(tokens_.begin() + static_cast<ptrdiff_t>(keep), tokens_.begin() + static_cast<ptrdiff_t>(keep + drop));
  session_.rewind(std::min(session_.position(), static_cast<int64_t>(keep)));
}

// Appends tokens and reads all that was not read.
std::span<const float> Generator::feed(std::span<const TokenId> tokens) {
  if (static_cast<int64_t>(tokens_.size() + tokens.size()) > session_.context() && options_.shift &&
      static_cast<int64_t>(tokens.size()) < session_.context())
    make_room(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return session_.feed(std::span(tokens_).subspan(static_cast<size_t>(session_.position())));
}

Generator::Result Generator::answer(std::span<const TokenId> prompt, bool whole,
                                    const std::function<void(std::string_view)>& show,
                                    const std::function<bool()>& go_on) {
  Result out;
  if (prompt.empty()) throw usage_error("the prompt is empty");
  if (whole) {
    // What is known stays; the last token is read in any case: what follows it is asked for.
    const auto differ = std::mismatch(prompt.begin(), prompt.end(), tokens_.begin(), tokens_.end());
    size_t known = static_cast<size_t>(differ.first - prompt.begin());
    known = std::min({known, prompt.size() - 1, static_cast<size_t>(session_.position())});
    tokens_.resize(known);
    session_.rewind(static_cast<int64_t>(known));
    sampler_.forget();
    for (const TokenId id : prompt) sampler_.accept(id);
    prompt = prompt.subspan(known);
  } else {
    for (const TokenId id : prompt) sampler_.accept(id);
  }
  if (options_.keep < 0 && tokens_.empty()) options_.keep = static_cast<int64_t>(prompt.size());
  if (matcher_) matcher_->restart();
  auto start = Clock::now();
  const int64_t before = session_.position();
  std::span<const float> logits = feed(prompt);
  out.read = session_.position() - before;
  out.read_seconds = seconds_since(start);
  const std::vector<TokenId> ends = tokenizer_.end_of_generation();
  TokenStream stream(tokenizer_);
  StopTexts stops(options_.stops);
  const auto put = [&](const std::string& text) {
    const std::string shown = stops.push(text);
    out.text += shown;
    if (!shown.empty()) show(shown);
  };
  start = Clock::now();
  for (;;) {
    if (!go_on()) {
      out.reason = EndReason::interrupted;
      break;
    }
    if (options_.predict >= 0 && out.made >= options_.predict) {
      out.reason = EndReason::limit;
      break;
    }
    if (matcher_ && matcher_->must_end()) {
      out.reason = EndReason::grammar;
      break;
    }
    const TokenId id = sampler_.pick(logits, matcher_ ? &matcher_->allowed(tokenizer_, trie_) : nullptr);
    if (id < 0) {
      if (!matcher_) throw user_error("every token is forbidden");
      if (!matcher_->may_end())
        throw Error(Exit::user, "the vocabulary has no token with which the grammar could go on", "change the grammar");
      out.reason = EndReason::grammar;
      break;
    }
    ++out.made;
    const bool end = std::find(ends.begin(), ends.end(), id) != ends.end();
    if (end && (!options_.ignore_end || matcher_)) {
      out.reason = EndReason::end_token;
      break;
    }
    sampler_.accept(id);
    if (matcher_) LUMEN_CHECK(matcher_->accept(texts_[static_cast<size_t>(id)]));
    put(stream.push(id));
    if (stops.stopped()) {
      tokens_.push_back(id);
      out.reason = EndReason::stop_text;
      break;
    }
    const bool full = static_cast<int64_t>(tokens_.size()) + 1 > session_.context();
    const bool last = options_.predict >= 0 && out.made == options_.predict;
    if (last || (full && (!options_.shift || options_.predict == -2))) {
      // Written, but not yet read: nobody asks what follows.
      tokens_.push_back(id);
      out.reason = last ? EndReason::limit : EndReason::context;
      break;
    }
    logits = feed({&id, 1});
  }
  if (!stops.stopped()) {
    put(stream.finish());
    const std::string rest = stops.finish();
    out.text += rest;
    if (!rest.empty()) show(rest);
  }
  out.made_seconds = seconds_since(start);
  return out;
}

}  // namespace lumen::model
