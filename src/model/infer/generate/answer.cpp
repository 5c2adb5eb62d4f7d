#include "model/infer/generate/answer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "model/infer/generate/choose.h"

namespace lumen::model::infer {
namespace {

class ByGrammar : public TokenFilter {
 public:
  ByGrammar(const text::Tokenizer& tokenizer, const Constraint* constraint, GrammarMatcher* matcher,
            const std::vector<text::TokenId>& ends)
      : tokenizer_(tokenizer), constraint_(constraint), matcher_(matcher), ends_(ends) {}

  bool allows(text::TokenId id) override {
    if (std::find(ends_.begin(), ends_.end(), id) != ends_.end()) return matcher_->may_end();
    if (static_cast<size_t>(id) >= constraint_->tokens->strings.size()) return false;
    const std::string& text = constraint_->tokens->strings[id];
    return !text.empty() && matcher_->allows(text);
  }
  const TokenSet& all() override { return matcher_->allowed(tokenizer_, constraint_->tokens->trie); }

 private:
  const text::Tokenizer& tokenizer_;
  const Constraint* constraint_;
  GrammarMatcher* matcher_;
  const std::vector<text::TokenId>& ends_;
};

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, std::string());
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& t : strings_) {
    const size_t at = held_.find(t);
    if (at >= first) continue;
    first = at;
    found_ = t;
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, first);
  }
  // The longest suffix that is a prefix of a stop string is held back.
  size_t wait = 0;
  for (const std::string& t : strings_) {
    for (size_t n = std::min(t.size() - 1, held_.size()); n > wait; --n) {
      if (std::string_view(held_).ends_with(std::string_view(t).substr(0, n))) wait = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - wait);
  held_.erase(0, held_.size() - wait);
  return out;
}

std::string StopStrings::finish() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

std::string_view reason_name(EndReason reason) {
  constexpr std::string_view kNames[] = {"end", "stop", "grammar", "limit", "context", "interrupted"};
  return kNames[ordinal(reason)];
}

std::vector<text::TokenId> never_drawn(const text::Tokenizer& tokenizer, int64_t vocabulary, bool ignore_end) {
  const std::vector<text::TokenId> ends = tokenizer.end_of_generation();  // ascending
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < vocabulary; ++i) {
    const text::TokenId id = i;
    const bool is_end = std::binary_search(ends.begin(), ends.end(), id);
    if (is_end ? ignore_end : !tokenizer.has(id)) out.push_back(id);
  }
  return out;
}

Constraint::Constraint(const text::Tokenizer& tokenizer, const std::string& text,
                       std::shared_ptr<const TokenStrings> all)
    : grammar(std::make_shared<const Grammar>(Grammar::parse(text))),
      states(std::make_shared<GrammarStates>(grammar)),
      tokens(all ? std::move(all) : std::make_shared<const TokenStrings>(tokenizer)) {}

Answer::Answer(const text::Tokenizer& tokenizer, const GenerateOptions& options, Sampler& sampler,
               const Constraint* constraint, GrammarMatcher* matcher, Show show)
    : tokenizer_(tokenizer),
      options_(options),
      sampler_(sampler),
      constraint_(constraint),
      matcher_(matcher),
      show_(std::move(show)),
      ends_(tokenizer.end_of_generation()),
      stream_(tokenizer),
      stops_(options.stops) {
  LUMEN_CHECK((constraint == nullptr) == (matcher == nullptr));
  if (options_.least == 0) return;
  late_ = sampler_.bar(ends_);
  const std::vector<text::TokenId> further = sampler_.bar(options_.ends);
  late_.insert(late_.end(), further.begin(), further.end());
}

bool Answer::pick(const LogitRow& row) {
  ByGrammar filter(tokenizer_, constraint_, matcher_, ends_);
  chosen_ = sampler_.pick_if_decided(row, matcher_ ? &filter : nullptr);
  return chosen_.has_value();
}

void Answer::put(const std::string& text) {
  const std::string shown = made_ <= options_.least ? text : stops_.push(text);
  text_ += shown;
  if (!shown.empty()) show_(shown);
}

void Answer::end(EndReason reason) {
  if (!reason_) reason_ = reason;
}

bool Answer::choose(const LogitRow& row) {
  return ended() || chosen_ || is_at_end() || pick(row);
}

std::optional<TokenSet> Answer::allowed() const {
  if (!matcher_) return std::nullopt;
  ByGrammar filter(tokenizer_, constraint_, matcher_, ends_);
  return sampler_.allowed(filter);
}

bool Answer::choose(DistantRow& row) {
  ByGrammar filter(tokenizer_, constraint_, matcher_, ends_);
  chosen_ = sampler_.decide(row, matcher_ ? &filter : nullptr);
  return chosen_.has_value();
}

std::optional<text::TokenId> Answer::draw(const LogitRow& row) {
  LUMEN_CHECK(!ended());
  if (!chosen_ && is_at_end()) {
    end(is_at_limit() ? EndReason::limit : EndReason::grammar);
    return std::nullopt;
  }
  if (!chosen_) {
    const Choice own{this, &row};
    choose_tokens({&own, 1});
  }
  if (!chosen_ && !pick(row)) {  // what failed fails again
    (void)row.whole();
    LUMEN_CHECK(pick(row));
  }
  const text::TokenId id = *std::exchange(chosen_, std::nullopt);
  if (id < 0) {
    if (!matcher_) throw user_error("every token is forbidden");
    if (!matcher_->may_end())
      throw Error(Exit::user, "no token of the vocabulary can continue the grammar", "change the grammar");
    end(EndReason::grammar);
    return std::nullopt;
  }
  if (++made_ == options_.least) sampler_.permit(std::exchange(late_, {}));
  const bool is_end = std::find(ends_.begin(), ends_.end(), id) != ends_.end();
  if (is_end) {
    end_token_ = id;
    end(EndReason::end_token);
    return std::nullopt;
  }
  sampler_.accept(id);
  if (matcher_) LUMEN_CHECK(matcher_->accept(constraint_->tokens->strings[id]));
  if (std::find(options_.ends.begin(), options_.ends.end(), id) != options_.ends.end()) {
    end_token_ = id;
    end(EndReason::end_token);
    return std::nullopt;
  }
  if (matcher_ && tokenizer_.kind(id) == text::TokenKind::control)
    put(stream_.finish() + constraint_->tokens->strings[id]);
  else if (std::find(options_.shown.begin(), options_.shown.end(), id) != options_.shown.end())
    put(stream_.finish() + std::string(tokenizer_.token(id)));
  else
    put(stream_.push(id));
  if (stops_.stopped()) end(EndReason::stop_string);
  if (options_.predict >= 0 && made_ == options_.predict) end(EndReason::limit);
  return id;
}

EndReason Answer::finish() {
  LUMEN_CHECK(ended());
  if (!stops_.stopped()) {
    put(stream_.finish());
    const std::string rest = stops_.finish();
    text_ += rest;
    if (!rest.empty()) show_(rest);
  }
  return *reason_;
}

}  // namespace lumen::model::infer
