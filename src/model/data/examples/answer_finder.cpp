#include "model/data/examples/answer_finder.h"

#include <algorithm>

#include "base/error.h"
#include "model/templates/answer_form.h"
#include "model/templates/messages.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLost = "the answer cannot be found in the template's output";
constexpr const char* kOtherTemplate = "--chat-template names another template; {% generation %} marks the answer";
constexpr const char* kSpace = " \t\r\n";
constexpr size_t kLongestTag = 40;

[[noreturn]] void wrong(std::string reason, std::string detail = {}) {
  throw ShapeFault{std::move(reason), std::move(detail)};
}

[[noreturn]] void lost(const std::string& why) {
  wrong(kLost, fmt::format("{}; {}", why, kOtherTemplate));
}

bool is_space(char c) {
  return std::string_view(kSpace).find(c) != std::string_view::npos;
}

// <name> or </name> at a place; its size, or 0.
size_t tag_at(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '<') return 0;
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
           c == '-';
  };
  const size_t first = at + 1 + (text.substr(at + 1).starts_with('/') ? 1 : 0);
  size_t end = first;
  while (end < text.size() && end - at < kLongestTag && is_name(text[end])) ++end;
  return end > first && end < text.size() && text[end] == '>' ? end + 1 - at : 0;
}

// Another letter of as many bytes, or the same where a character is no letter or digit: templates look at names, tags,
// white space and signs, but not at letters.
char32_t other_letter(char32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return c == 'z' ? 'a' : c == 'Z' ? 'A' : c + 1;
  if (c >= '0' && c <= '9') return c == '9' ? '0' : c + 1;
  const bool is_sign = c < 0xc0 || (c >= 0x2000 && c <= 0x206f) || (c >= 0x3000 && c <= 0x303f) || c == 0x1680 ||
                       c == 0xfeff || (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
  return is_sign ? c : c ^ 1;
}

// The text with other letters up to `end`, outside of tags.
std::string other_letters(const std::string& text, size_t end = std::string::npos) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t tag = tag_at(text, at);
    const size_t next = tag > 0 ? at + tag : at;
    out.append(text, at, next - at);
    at = next;
    if (tag > 0 || at >= text.size()) continue;
    char32_t c = 0;
    const size_t size = std::max<size_t>(1, text::utf8_char(text, at, &c));
    if (at < end && c != 0)
      text::utf8_append(out, other_letter(c));
    else
      out.append(text, at, size);
    at += size;
  }
  return out.size() == text.size() ? out : text;
}

void change_letters(ordered_json& value) {
  if (value.is_string()) {
    value = other_letters(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (auto& [key, item] : value.items())
      if (templates::is_said(key)) change_letters(item);
  }
}

templates::ChatText cut_from(const templates::ChatText& text, size_t begin) {
  templates::ChatText out{.text = text.text.substr(begin), .plain = {}, .begins = {}, .ends = {}};
  for (const templates::ChatText::Part& part : text.plain)
    if (part.end > begin) out.plain.push_back({std::max(part.begin, begin) - begin, part.end - begin});
  return out;
}

void append(templates::ChatText& to, const templates::ChatText& more) {
  const size_t at = to.text.size();
  to.text += more.text;
  for (const templates::ChatText::Part& part : more.plain) to.plain.push_back({part.begin + at, part.end + at});
}

// Thoughts within a content: TAG thoughts /TAG, or without the first tag where what opens the answer has it.
struct InlineThoughts {
  std::string open, close;
  size_t end = 0;  // behind `close`
};
std::optional<InlineThoughts> inline_thoughts(const std::string& content) {
  for (size_t at = 0; (at = content.find("</", at)) != std::string::npos; ++at) {
    const size_t size = tag_at(content, at);
    if (size == 0) continue;
    const std::string close = content.substr(at, size);
    return InlineThoughts{"<" + close.substr(2), close, at + size};
  }
  return std::nullopt;
}

// The tag with which a text ends, white space aside; empty: none.
std::string last_tag(const std::string& text) {
  const size_t end = text.find_last_not_of(kSpace) + 1, at = text.rfind('<', end);
  return at != std::string::npos && tag_at(text, at) > 0 && at + tag_at(text, at) == end ? text.substr(at, end - at)
                                                                                         : std::string();
}

}  // namespace

AnswerFinder::AnswerFinder(const templates::ChatRenderer& renderer, const ordered_json& messages,
                           const ordered_json& more)
    : renderer_(renderer) {
  try {
    chat_ = renderer.mark(messages, more);
    full_ = renderer.render(chat_, {.mark_answers = renderer.has_answers()});
  } catch (const templates::TemplateOverrun&) {
    throw;  // no fault of the row: the next one would take as long
  } catch (const Error& error) {
    wrong("the template refuses the conversation", fmt::format("{}; --chat-template names another", error.what()));
  }
}

bool AnswerFinder::ends_turn(text::TokenId id) const {
  const auto& ends = renderer_.form().ends;
  return std::binary_search(ends.begin(), ends.end(), id);
}

bool AnswerFinder::is_ended(const templates::ChatText& text, const Part& part) const {
  const auto controls = renderer_.controls_in(text, part);
  return !controls.empty() && ends_turn(controls.back().id);
}

AnswerText AnswerFinder::in_whole(const std::vector<size_t>& answers) const {
  AnswerText out{full_, {}, chat_.messages.size()};
  if (renderer_.has_answers()) {
    out.parts = from_blocks(full_, answers);
    return out;
  }
  for (const size_t k : answers) {
    const bool is_last = k + 1 == chat_.messages.size();
    const auto own = is_last ? std::optional(full_) : printed(k + 1, false);
    Part part;
    if (own) part = last_answer(k, *own);
    if (own && part.begin < part.end && full_.text.starts_with(std::string_view(own->text).substr(0, part.end)))
      take_end(full_, own->text.size(), &part);
    else
      part = answer_within(k);
    if (part.begin >= part.end || (!out.parts.empty() && part.begin < out.parts.back().end))
      lost("answers lie within each other, or are empty");
    out.parts.push_back(part);
  }
  return out;
}

std::vector<AnswerText> AnswerFinder::in_turns(const std::vector<size_t>& answers, std::string* cut) const {
  std::vector<AnswerText> out;
  AnswerText now{full_, {}, chat_.messages.size()};
  const auto close = [&] {
    std::reverse(now.parts.begin(), now.parts.end());
    if (!now.parts.empty()) out.push_back(std::move(now));
  };
  for (size_t i = answers.size(); i-- > 0;) {
    const size_t k = answers[i];
    const auto own = k + 1 == chat_.messages.size() ? std::optional(full_) : printed(k + 1, false);
    require_calls(k, own.value_or(full_));
    if (!own) {  // templates refuse conversations without a question, say
      const Part part = renderer_.has_answers() ? from_blocks(full_, {k}).front() : answer_within(k);
      if (now.count != chat_.messages.size()) {
        close();
        now = {full_, {}, chat_.messages.size()};
      }
      now.parts.push_back(part);
      continue;
    }
    if (loses_thoughts(k, *own)) {
      if (auto thinking = with_thoughts(k, *own)) {
        close();
        now = std::move(*thinking);
        continue;
      }
      *cut = "thoughts that the template prints nowhere";
    }
    Part part = renderer_.has_answers() ? from_blocks(*own, {k}).front() : last_answer(k, *own);
    if (part.begin >= part.end) lost("the template prints nothing of an answer");
    if (now.text.text.starts_with(std::string_view(own->text).substr(0, part.end))) {
      if (!renderer_.has_answers()) take_end(now.text, own->text.size(), &part);
      now.parts.push_back(part);
    } else {
      close();
      now = {*own, {part}, k + 1};
    }
  }
  close();
  std::reverse(out.begin(), out.end());
  return out;
}

// Each block is the next message of the assistant's.
std::vector<templates::ChatText::Part> AnswerFinder::from_blocks(const templates::ChatText& text,
                                                                 const std::vector<size_t>& answers) const {
  std::vector<Part> blocks;
  if (text.begins.size() != text.ends.size()) lost("the template prints parts of answers only");
  for (size_t i = 0; i < text.begins.size(); ++i) {
    if (text.begins[i] > text.ends[i] || (i > 0 && text.begins[i] < text.ends[i - 1]))
      lost("the template's answers lie within each other");
    blocks.push_back({text.begins[i], text.ends[i]});
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < chat_.messages.size(); ++i)
    if (chat_.messages[i]["role"] == "assistant") all.push_back(i);
  if (answers == all) return blocks;
  std::vector<Part> out;
  for (const size_t k : answers) {
    const size_t number = std::find(all.begin(), all.end(), k) - all.begin();
    if (number >= blocks.size() || blocks.size() > all.size()) lost("the template prints another number of answers");
    out.push_back(blocks[number]);
  }
  return out;
}

std::optional<templates::ChatText> AnswerFinder::print(const templates::MarkedChat& chat, size_t count,
                                                       bool open) const {
  try {
    return renderer_.render(chat, {.count = count, .open_answer = open, .mark_answers = renderer_.has_answers()});
  } catch (const templates::TemplateOverrun&) {
    throw;  // no fault of the row: the next one would take as long
  } catch (const Error&) {
    return std::nullopt;
  }
}

// From the first to the last character of `text`, which is printed of the first `count` messages, that comes from
// message k.
templates::ChatText::Part AnswerFinder::own_part(size_t k, const templates::ChatText& text, size_t count) const {
  try {
    const templates::ChatText marked = renderer_.render(chat_, {.count = count, .marked = k});
    if (marked.text == text.text && !marked.begins.empty() && !marked.ends.empty())
      return {marked.begins.front(), marked.ends.back()};
  } catch (const templates::TemplateOverrun&) {
    throw;                  // no fault of the row: the next one would take as long
  } catch (const Error&) {  // marks may be in the way of what a template looks for
  }
  templates::MarkedChat other = chat_;
  change_letters(other.messages[k]);
  const auto changed = print(other, count, false);
  if (!changed || changed->text.size() != text.text.size())
    lost("its output around an answer depends on the answer's letters");
  const auto differs = [&](size_t i) { return changed->text[i] != text.text[i]; };
  size_t begin = 0, end = text.text.size();
  while (begin < end && !differs(begin)) ++begin;
  while (end > begin && !differs(end - 1)) --end;
  if (begin == end) lost("it prints nothing of an answer");
  return {begin, end};
}

// Nothing of the messages before answer k is printed behind it.
void AnswerFinder::require_last(size_t k, const templates::ChatText& text, size_t end) const {
  templates::MarkedChat other = chat_;
  for (size_t i = 0; i < k; ++i) change_letters(other.messages[i]);
  const auto changed = print(other, k + 1, false);
  if (!changed || !changed->text.ends_with(std::string_view(text.text).substr(end)))
    lost("it prints other messages after an answer");
}

// Where answer k begins in what is printed of the first `count` messages.
size_t AnswerFinder::begin_of(size_t k, const templates::ChatText& text, size_t count) const {
  const auto open = printed(k, true);
  if (open && text.text.starts_with(open->text)) return open->text.size();
  return opened(k, text, count, open);
}

// Templates may open the answer that is to come in another way than those that were given: what both have in common, up
// to the answer's own text, opens this one.
size_t AnswerFinder::opened(size_t k, const templates::ChatText& text, size_t count,
                            const std::optional<templates::ChatText>& open) const {
  const Part printed_part = own_part(k, text, count);
  if (count == k + 1) require_last(k, text, printed_part.end);
  const size_t own = printed_part.begin;
  const auto before = printed(k, false);
  const bool is_known = open && before && open->text.starts_with(before->text);
  const std::string opening = is_known ? open->text.substr(before->text.size()) : renderer_.form().opening;
  if (before && text.text.starts_with(before->text)) {
    const size_t at = before->text.size();
    size_t same = 0;
    while (same < opening.size() && at + same < own && opening[same] == text.text[at + same]) ++same;
    // <think> and </think> have nothing in common.
    if (const size_t tag = opening.substr(0, same).rfind('<'); tag != std::string::npos)
      if (opening.find('>', tag) >= same && tag_at(opening, tag) > 0) same = tag;
    if (same > 0) return at + same;
  }
  // Earlier messages are printed in another way: the opening is looked for, whole, then up to each of its tokens.
  std::vector<size_t> sizes = {opening.size()};
  const templates::ChatText alone{.text = opening, .plain = {}, .begins = {}, .ends = {}};
  for (const text::AddedTokens::Match& control : renderer_.controls_in(alone, {0, opening.size()}))
    sizes.insert(sizes.begin() + 1, control.end);
  for (const size_t size : sizes) {
    if (size == 0 || size > own) continue;
    const size_t at = text.text.rfind(opening.substr(0, size), own - size);
    if (at != std::string::npos) return at + size;
  }
  return own;
}

// Answer k, with which the text ends.
templates::ChatText::Part AnswerFinder::last_answer(size_t k, const templates::ChatText& text) const {
  return up_to_end(text, {begin_of(k, text, k + 1), text.text.size()});
}

// Answer k within the whole text, where what is printed up to it is no beginning of that: up to the token that ends it.
templates::ChatText::Part AnswerFinder::answer_within(size_t k) const {
  const size_t count = chat_.messages.size();
  if (k + 1 == count) return last_answer(k, full_);
  const Part own = own_part(k, full_, count);
  const size_t begin = begin_of(k, full_, count);
  for (const text::AddedTokens::Match& control : renderer_.controls_in(full_, {own.end, full_.text.size()}))
    if (ends_turn(control.id)) return {begin, control.end};
  lost("no token ends the answer");
}

// The token with which an answer ends may be the next message's: it is the first thing behind the answer's text, which
// ends at `from`.
void AnswerFinder::take_end(const templates::ChatText& text, size_t from, Part* part) const {
  if (is_ended(text, *part)) return;
  const auto control = renderer_.next_control(text, part->end);
  if (!control || !ends_turn(control->id) || control->begin < from) return;
  const std::string_view between = std::string_view(text.text).substr(from, control->begin - from);
  if (std::all_of(between.begin(), between.end(), is_space)) part->end = control->end;
}

// What stands behind the token that ends an answer is the template's.
templates::ChatText::Part AnswerFinder::up_to_end(const templates::ChatText& text, Part part) const {
  const auto last = last_control(renderer_, text, part, renderer_.form().ends);
  return {part.begin, last ? last->end : part.end};
}

// Calls of which the template prints nothing would be learned as empty answers.
void AnswerFinder::require_calls(size_t k, const templates::ChatText& text) const {
  if (!chat_.messages[k].contains("tool_calls")) return;
  templates::MarkedChat other = chat_;
  for (ordered_json& call : other.messages[k]["tool_calls"]) {
    ordered_json& name = call["function"]["name"];
    name = other_letters(name.get_ref<const std::string&>());
    change_letters(call["function"]);
  }
  const size_t count = text.text == full_.text ? chat_.messages.size() : k + 1;
  const auto changed = print(other, count, false);
  if (changed && changed->text == text.text) wrong("the template prints no calls of tools", kOtherTemplate);
}

// Whether nothing of the thoughts of message k is printed even where it is the last one.
bool AnswerFinder::loses_thoughts(size_t k, const templates::ChatText& text) const {
  templates::MarkedChat other = chat_;
  ordered_json& message = other.messages[k];
  bool thinks = false;
  for (auto& [key, value] : message.items()) {
    if (!value.is_string()) continue;
    const auto& said = value.get_ref<const std::string&>();
    const auto thoughts = key == "content" ? inline_thoughts(said) : std::nullopt;
    if (key != "content" && templates::thoughts_of({{key, value}}).empty()) continue;
    if (key == "content" && !thoughts) continue;
    std::string changed = other_letters(said, thoughts ? thoughts->end : std::string::npos);
    thinks |= changed != said;
    value = std::move(changed);
  }
  if (!thinks) return false;
  const auto changed = print(other, k + 1, false);
  return changed && changed->text == text.text;
}

// Answer k with its thoughts where the template drops them of every answer that was given, as models write them: behind
// what opens the answer, without the mark that there are none.
std::optional<AnswerText> AnswerFinder::with_thoughts(size_t k, const templates::ChatText& text) const {
  auto open = printed(k, true);
  const ordered_json& message = chat_.messages[k];
  const std::string content = message["content"].is_string() ? message["content"].get<std::string>() : "";
  if (!open) return std::nullopt;
  const auto thoughts = inline_thoughts(content);
  std::string opened_with = last_tag(open->text);
  if (opened_with.starts_with("</") && (!thoughts || opened_with == thoughts->close)) {
    open->text.resize(open->text.rfind(opened_with));
    opened_with = last_tag(open->text);
  }
  const std::string space = open->text.substr(open->text.find_last_not_of(kSpace) + 1);
  std::string head, close;
  if (thoughts) {
    close = thoughts->close;
    const size_t first = content.find_first_not_of(kSpace);
    head = content.substr(first, thoughts->end - first);
    if (opened_with == thoughts->open && head.starts_with(opened_with)) {
      head.erase(0, opened_with.size());
      head.erase(0, head.starts_with(space) ? space.size() : head.find_first_not_of(kSpace));
    }
    const size_t behind = content.find_first_not_of(kSpace, thoughts->end);
    head += content.substr(thoughts->end, behind == std::string::npos ? behind : behind - thoughts->end);
  } else {
    if (opened_with.empty() || opened_with.starts_with("</")) return std::nullopt;
    close = "</" + opened_with.substr(1);
    head = templates::thoughts_of(message) + space + close + space + space;
  }
  templates::ChatText rest = cut_from(text, begin_of(k, text, k + 1));
  // The template may write that there are no thoughts.
  const auto skip_space = [&] {
    rest = cut_from(rest, std::min(rest.text.find_first_not_of(kSpace), rest.text.size()));
  };
  skip_space();
  if (rest.text.starts_with("<" + close.substr(2)) || rest.text.starts_with(close)) {
    rest = cut_from(rest, rest.text.find(close) + close.size());
    skip_space();
  }
  AnswerText out{*open, {}, k + 1};
  append(out.text, templates::ChatRenderer::unmarked(chat_, head));
  append(out.text, rest);
  out.parts = {up_to_end(out.text, {open->text.size(), out.text.text.size()})};
  return out;
}

}  // namespace lumen::model::data
