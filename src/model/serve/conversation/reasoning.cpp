#include "model/serve/conversation/reasoning.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBlank = " \t\r\n";
constexpr const char *kAsked = "qaskedhere", *kThought = "qthoughthere", *kAnswered = "qanswered";
constexpr const char* kNames[] = {"<think>", "<thinking>", "<thought>", "<reasoning>", "<reason>", "[THINK]"};
constexpr const char* kVariables[] = {"enable_thinking", "thinking"};
constexpr size_t kLongestMark = 64;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

// The tag <..> or [..] at the end of a text; empty if it ends otherwise.
std::string_view last_tag(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || (text.back() != '>' && text.back() != ']')) return {};
  const size_t begin = text.rfind(text.back() == '>' ? '<' : '[');
  return begin == std::string_view::npos || text.size() - begin > kLongestMark ? std::string_view()
                                                                               : text.substr(begin);
}

std::string closing(std::string_view open) {
  return std::string(open.substr(0, 1)) + "/" + std::string(open.substr(1));
}

ordered_json user() {
  return {{"role", "user"}, {"content", kAsked}};
}

// The rendered text; nullopt if the template raises an error.
std::optional<std::string> printed(const templates::ChatRenderer& renderer, const ordered_json& messages,
                                   const ordered_json& more, bool open) {
  try {
    return renderer.render(renderer.mark(messages, more), {.open_answer = open}).text;
  } catch (const templates::TemplateOverrun&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> opened(const templates::ChatRenderer& renderer, const ordered_json& more) {
  return printed(renderer, ordered_json::array({user()}), more, true);
}

// The text that the template adds for the answer.
std::string opening(const templates::ChatRenderer& renderer, const ordered_json& more) {
  const auto open = opened(renderer, more), closed = printed(renderer, ordered_json::array({user()}), more, false);
  if (!open || !closed || !open->starts_with(*closed)) return {};
  return open->substr(closed->size());
}

// The marks of a template that begins an answer with its channel: what stands between the generation prompt and the
// reasoning, and before an answer without reasoning. `thoughtful`: the rendered answer with its reasoning.
std::optional<ReasoningMarks> marks_of_channels(const templates::ChatRenderer& renderer, const ordered_json& more,
                                                std::string_view thoughtful, size_t thought, std::string_view close) {
  const ordered_json answer = {{"role", "assistant"}, {"content", kAnswered}};
  const auto prompt = opened(renderer, more),
             plain = printed(renderer, ordered_json::array({user(), answer}), more, false);
  if (!prompt || !plain || !plain->starts_with(*prompt) || !thoughtful.starts_with(*prompt)) return std::nullopt;
  const size_t begin = prompt->size(), answered = plain->find(kAnswered, begin);
  if (answered == std::string::npos || thought < begin) return std::nullopt;
  const std::string_view open = trimmed(thoughtful.substr(begin, thought - begin)),
                         mark = trimmed(std::string_view(*plain).substr(begin, answered - begin));
  if (open.empty() || mark.empty() || open.size() > kLongestMark || mark.size() > kLongestMark) return std::nullopt;
  if (!close.ends_with(mark) || close.size() == mark.size()) return std::nullopt;
  const std::string_view end = trimmed(close.substr(0, close.size() - mark.size()));
  return ReasoningMarks{std::string(open), std::string(end), std::string(mark)};
}

// From an answer that is rendered with its reasoning.
std::optional<ReasoningMarks> marks_of_answer(const templates::ChatRenderer& renderer, const ordered_json& more) {
  const ordered_json answer = {{"role", "assistant"}, {"content", kAnswered}, {"reasoning_content", kThought}};
  const auto text = printed(renderer, ordered_json::array({user(), answer}), more, false);
  if (!text) return std::nullopt;
  const size_t thought = text->find(kThought), end = thought + std::string_view(kThought).size();
  const size_t answered = text->find(kAnswered, thought);
  if (thought == std::string::npos || answered == std::string::npos) return std::nullopt;
  const std::string_view close = trimmed(std::string_view(*text).substr(end, answered - end));
  if (auto channels = marks_of_channels(renderer, more, *text, thought, close)) return channels;
  const std::string_view open = last_tag(std::string_view(*text).substr(0, thought));
  if (open.empty() || close.empty() || close.size() > kLongestMark) return std::nullopt;
  return ReasoningMarks{std::string(open), std::string(close)};
}

// Whether the template treats the text between the marks differently from an answer's text.
bool takes_apart(const templates::ChatRenderer& renderer, const std::string& open, const ordered_json& more) {
  const std::string close = closing(open);
  const ordered_json answer = {{"role", "assistant"}, {"content", open + kThought + close + kAnswered}};
  const ordered_json messages = ordered_json::array({user(), answer, user()});
  const auto text = printed(renderer, messages, more, false);
  return text && text->find(kAnswered) != std::string::npos && text->find(kThought) == std::string::npos;
}

bool is_token(const text::Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.parse_special = true}).size() == 1;
}

std::optional<ReasoningMarks> find_marks(const templates::ChatRenderer& renderer, const ordered_json& more) {
  if (auto marks = marks_of_answer(renderer, more)) return marks;
  const std::string tag(last_tag(opening(renderer, more)));
  const bool is_known = std::find(std::begin(kNames), std::end(kNames), tag) != std::end(kNames);
  if (tag.size() > 2 && tag[1] != '/' && (is_known || takes_apart(renderer, tag, more)))
    return ReasoningMarks{tag, closing(tag)};
  for (const char* name : kNames)
    if (takes_apart(renderer, name, more)) return ReasoningMarks{name, closing(name)};
  for (const char* name : kNames) {
    try {
      const text::Tokenizer& tokenizer = renderer.tokenizer();
      if (is_token(tokenizer, name) && is_token(tokenizer, closing(name))) return ReasoningMarks{name, closing(name)};
    } catch (const Error&) {  // characters that are not in the vocabulary
    }
  }
  return std::nullopt;
}

// Takes the marks that are control tokens, and those of channels' marks; false if another mark is only partly one, so
// that outputs cannot show it.
bool take_controls(const templates::ChatRenderer& renderer, const ReasoningMarks& marks,
                   std::vector<text::TokenId>* out) {
  for (const std::string& mark : {marks.open, marks.close, marks.answer}) {
    templates::ChatText text;
    text.text = mark;
    const auto found = renderer.controls_in(text, {0, mark.size()});
    if (found.empty()) continue;
    if (!marks.answer.empty()) {
      for (const auto& one : found)
        if (std::find(out->begin(), out->end(), one.id) == out->end()) out->push_back(one.id);
      continue;
    }
    if (found.size() > 1 || found[0].begin != 0 || found[0].end != mark.size()) return false;
    out->push_back(found[0].id);
  }
  return true;
}

// Length of the end of `text` that may be the beginning of `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  size_t count = std::min(text.size(), mark.size() - 1);
  while (count > 0 && !text.ends_with(mark.substr(0, count))) --count;
  return count;
}

}  // namespace

ReasoningForm learn_reasoning(const templates::ChatRenderer& renderer) {
  const templates::TemplateBudget budget;
  ReasoningForm out;
  ordered_json more = ordered_json::object();
  for (const char* variable : kVariables) {
    const auto on = opened(renderer, {{variable, true}}), off = opened(renderer, {{variable, false}});
    if (!on || !off || *on == *off) continue;
    out.variable = variable;
    more[variable] = true;
    break;
  }
  const auto low = opened(renderer, {{"reasoning_effort", "low"}}),
             high = opened(renderer, {{"reasoning_effort", "high"}});
  out.reads_effort = low && high && *low != *high;
  out.marks = find_marks(renderer, more);
  if (out.marks && !take_controls(renderer, *out.marks, &out.controls)) {
    out.marks.reset();
    out.controls.clear();
  }
  return out;
}

bool opens_reasoning(const ReasoningMarks& marks, std::string_view prompt) {
  return trimmed(prompt).ends_with(marks.open);
}

bool closes_reasoning(const ReasoningMarks& marks, std::string_view prompt) {
  return trimmed(prompt).ends_with(marks.close);
}

ReasoningReader::ReasoningReader(ReasoningMarks marks, bool is_open, std::string before)
    : marks_(std::move(marks)), before_(std::move(before)), state_(is_open ? State::reasoning : State::start) {}

ReasoningReader::Piece ReasoningReader::push(std::string_view text) {
  held_ += text;
  Piece out;
  while (go_on(&out)) {
  }
  return out;
}

ReasoningReader::Piece ReasoningReader::finish() {
  Piece out;
  if (state_ == State::reasoning)
    put_reasoning(trimmed(held_).empty() ? 0 : held_.find_last_not_of(kBlank) + 1, &out);
  else if (state_ != State::after)
    out.text = held_;
  held_.clear();
  return out;
}

// Moves the first bytes to the reasoning, without white space at its beginning.
void ReasoningReader::put_reasoning(size_t size, Piece* out) {
  std::string_view text = std::string_view(held_).substr(0, size);
  if (!any_) text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  any_ = any_ || !text.empty();
  out->reasoning += text;
  held_.erase(0, size);
}

// False if more text is needed.
bool ReasoningReader::go_on(Piece* out) {
  switch (state_) {
    case State::start: {
      const std::string_view rest =
          std::string_view(held_).substr(std::min(held_.find_first_not_of(kBlank), held_.size()));
      for (const std::string& mark : {marks_.open, marks_.answer})
        if (rest.size() < mark.size() && mark.starts_with(rest)) return false;
      const size_t blank = held_.size() - rest.size();
      if (rest.starts_with(marks_.open)) {
        held_.erase(0, blank + marks_.open.size());
        if (any_) out->reasoning += "\n\n";  // of another message
        state_ = State::reasoning;
      } else if (!marks_.answer.empty() && rest.starts_with(marks_.answer)) {
        held_.erase(0, blank + marks_.answer.size());
        state_ = State::after;
      } else {
        state_ = State::text;
      }
      return true;
    }
    case State::reasoning: {
      const size_t close = held_.find(marks_.close);
      const size_t before = before_.empty() ? std::string::npos : held_.find(before_);
      const size_t end = std::min(close, before);
      size_t size = end;
      if (end == std::string::npos) size = held_.size() - std::max(begun(held_, marks_.close), begun(held_, before_));
      while (size > 0 && std::string_view(kBlank).find(held_[size - 1]) != std::string_view::npos) --size;
      put_reasoning(size, out);
      if (end == std::string::npos) return false;
      held_.erase(0, end - size + (close <= before ? marks_.close.size() : 0));
      state_ = marks_.answer.empty() ? State::after : State::start;
      return true;
    }
    case State::after: {
      held_.erase(0, std::min(held_.find_first_not_of(kBlank), held_.size()));
      if (held_.empty()) return false;
      state_ = State::text;
      return true;
    }
    case State::text:
      break;
  }
  out->text += held_;
  held_.clear();
  return false;
}

}  // namespace lumen::model::serve
