#include "model/templates/answer_form.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/text/tokenizer/characters.h"

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

// Probe strings passed to the template; they occur in no template.
constexpr const char *kAsked = "qasked", *kAnswered = "qanswered", *kNext = "qnext", *kKey = "qkey", *kValue = "qvalue";

ordered_json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

ordered_json call(const ordered_json& arguments) {
  ordered_json out = message("assistant", "");
  // Nine letters and digits, because some templates require a call id of this form.
  out["tool_calls"] = {
      {{"id", "qcallone1"}, {"type", "function"}, {"function", {{"name", "qcalled"}, {"arguments", arguments}}}}};
  return out;
}

// The rendered text; nullopt if the template raises an error.
std::optional<ChatText> print(const ChatRenderer& renderer, const MarkedChat& chat, bool open = false) {
  try {
    return renderer.render(chat, {.open_answer = open});
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_space(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// The token that ends the last answer in `messages`, whose last text is `mark`: the last control token after the text,
// or otherwise the one with which the message `next` begins.
struct FoundEnd {
  std::optional<text::TokenId> id;
  bool is_next = false;
};
FoundEnd end_of(const ChatRenderer& renderer, ordered_json messages, const char* mark, const ordered_json& next) {
  const auto answer = print(renderer, renderer.mark(messages));
  const size_t at = answer ? answer->text.rfind(mark) : std::string::npos;
  if (at == std::string::npos) return {};
  const size_t behind = at + std::string_view(mark).size();
  const text::Tokenizer& tokenizer = renderer.tokenizer();
  if (const auto last = last_control(renderer, *answer, {behind, answer->text.size()}, tokenizer.end_of_generation()))
    return {last->id, false};
  messages.push_back(next);
  const auto both = print(renderer, renderer.mark(messages));
  if (!both || !both->text.starts_with(answer->text)) return {};
  const auto control = renderer.next_control(*both, behind);
  const auto bos = tokenizer.bos(), eos = tokenizer.eos();
  if (!control || control->begin < answer->text.size() || (bos == control->id && eos != bos) ||
      !is_space(std::string_view(both->text).substr(answer->text.size(), control->begin - answer->text.size())))
    return {};
  return {control->id, true};
}

}  // namespace

std::optional<LastControl> last_control(const ChatRenderer& renderer, const ChatText& text, ChatText::Part part,
                                        std::span<const text::TokenId> ends) {
  std::optional<LastControl> ended, last;
  const auto is_blank = [&](size_t begin, size_t end) {
    return is_space(std::string_view(text.text).substr(begin, end - begin));
  };
  for (const text::AddedTokens::Match& control : renderer.controls_in(text, part)) {
    if (last && !is_blank(last->end, control.begin)) ended.reset();
    last = {control.end, control.id};
    if (!ended && std::find(ends.begin(), ends.end(), control.id) != ends.end()) ended = last;
  }
  if (!last || !is_blank(last->end, part.end)) return std::nullopt;
  return ended ? ended : last;
}

CallStyle learn_call_style(const ChatRenderer& renderer) {
  const ordered_json arguments = {{kKey, kValue}};
  // Some templates print calls only where tools are given, or refuse a call without its result.
  const ordered_json tools = {{"tools",
                               {{{"type", "function"},
                                 {"function",
                                  {{"name", "qcalled"},
                                   {"description", "q"},
                                   {"parameters", {{"type", "object"}, {"properties", ordered_json::object()}}}}}}}}};
  ordered_json result = message("tool", kNext);
  result["tool_call_id"] = "qcallone1";
  const std::string json = fmt::format("{{\"{}\": \"{}\"}}", kKey, kValue), as_python = fmt::format("{{'{}'", kKey);
  const auto fits = [&](const CallStyle& style, bool whole) {
    ordered_json messages = ordered_json::array({message("user", kAsked), call(arguments)});
    if (whole) messages.push_back(result);
    MarkedChat chat = renderer.mark(messages, whole ? tools : ordered_json::object());
    ordered_json& answer = chat.messages[1];
    if (style.null_content) answer["content"] = nullptr;
    if (style.text_arguments) answer["tool_calls"][0]["function"]["arguments"] = json;
    const auto printed = print(renderer, chat);
    if (!printed) return false;
    const std::string& text = printed->text;
    if (style.text_arguments) return text.find(json) != std::string::npos;
    return text.find(kKey) != std::string::npos && text.find(as_python) == std::string::npos;
  };
  for (const bool whole : {false, true})
    for (const bool null_content : {false, true})
      for (const bool text_arguments : {false, true})
        if (const CallStyle style{text_arguments, null_content}; fits(style, whole)) return style;
  return {};
}

AnswerForm learn_answer_form(const ChatRenderer& renderer) {
  AnswerForm out;
  const ordered_json question = message("user", kAsked);
  const MarkedChat asked = renderer.mark(ordered_json::array({question}));
  const auto open = print(renderer, asked, true), closed = print(renderer, asked);
  if (open && closed && open->text.starts_with(closed->text)) out.opening = open->text.substr(closed->text.size());
  const FoundEnd text = end_of(renderer, ordered_json::array({question, message("assistant", kAnswered)}), kAnswered,
                               message("user", kNext));
  out.after_text = text.id;
  out.next_role_ends = text.is_next;
  ordered_json result = message("tool", kNext);
  result["tool_call_id"] = "qcallone1";
  out.after_calls = end_of(renderer, ordered_json::array({question, call({{kKey, kValue}})}), kValue, result).id;
  out.ends = renderer.tokenizer().end_of_generation();
  for (const auto& end : {out.after_text, out.after_calls})
    if (end && !std::binary_search(out.ends.begin(), out.ends.end(), *end))
      out.ends.insert(std::upper_bound(out.ends.begin(), out.ends.end(), *end), *end);
  return out;
}

namespace {

constexpr const char* kOwnEnd = "<|endoftext|>";
constexpr size_t kLongestName = 40;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// The size of <|name|>, <name>, </name>, [NAME] or [/NAME] at `at`, or 0.
size_t name_at(std::string_view text, size_t at) {
  const char open = text[at], close = open == '<' ? '>' : ']';
  if (open != '<' && open != '[') return 0;
  const size_t end = text.find_first_of("<>[]{}\"'= \t\r\n", at + 1);
  if (end == std::string_view::npos || text[end] != close || end - at > kLongestName) return 0;
  std::string_view name = text.substr(at + 1, end - at - 1);
  if (name.starts_with('/')) name.remove_prefix(1);
  if (name.empty() || name == "|" || name == "||") return 0;
  if (open == '[')
    return std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; })
               ? end + 1 - at
               : 0;
  return is_letter(name[0]) || name[0] == '|' || (name[0] & 0x80) != 0 ? end + 1 - at : 0;
}

void take_names(std::string_view text, std::set<std::string>& names) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = name_at(text, at);
    if (size > 0) names.emplace(text.substr(at, size));
    at += std::max<size_t>(1, size);
  }
}

// Conversations with everything that templates write names for; a template may reject some of them.
std::vector<ordered_json> conversations() {
  const ordered_json user = message("user", "q"), answer = message("assistant", "q"), called = call({{"q", "q"}});
  ordered_json thoughtful = answer, result = message("tool", "q");
  thoughtful["reasoning_content"] = "q";
  result["tool_call_id"] = "qcallone1";
  return {ordered_json::array({user, answer, user, answer}),
          ordered_json::array({message("system", "q"), user, answer, user}), ordered_json::array({user, thoughtful}),
          ordered_json::array({user, called, result, answer}), ordered_json::array({user, called, result})};
}

std::set<std::string> names_in(const ChatRenderer& renderer) {
  std::set<std::string> names;
  for (const ordered_json& messages : conversations()) {
    for (const bool open : {false, true}) {
      try {
        take_names(renderer.render(renderer.mark(messages), {.open_answer = open}).text, names);
      } catch (const Error&) {  // alternating roles are enforced, tools are not supported, ..
      }
    }
  }
  return names;
}

// Paired tags (<think> .. </think>) are ordinary text written by a model; only tags without a partner, and <s> and
// </s>, are control tokens.
std::vector<std::string> without_pairs(const std::set<std::string>& names, const std::string& text) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (name[0] == '<' && name != "<s>" && name != "</s>") {
      const bool closes = name[1] == '/';
      if (text.find(closes ? "<" + name.substr(2) : "</" + name.substr(1)) != std::string::npos) continue;
    }
    out.push_back(name);
  }
  return out;
}

}  // namespace

ChatVocabulary chat_vocabulary(const ChosenTemplate& chosen) {
  const ChatTemplate chat = chosen.parse();
  ChatVocabulary out;
  out.controls = without_pairs(names_in(ChatRenderer(text::Tokenizer::characters(" "), chat)), chosen.text);
  out.end = kOwnEnd;
  const auto with_own_end = [&] {
    std::vector<std::string> all = out.controls;
    if (std::find(all.begin(), all.end(), kOwnEnd) == all.end()) all.push_back(kOwnEnd);
    return all;
  };
  // The template either ends answers with its end token (EOS), or has a token of its own for them.
  const std::vector<std::string> all = with_own_end();
  const ChatRenderer renderer(text::character_tokenizer(" ", all, kOwnEnd), chat);
  std::string end;
  if (const auto id = renderer.form().after_text) end = renderer.tokenizer().token(*id);
  const bool is_own = !end.empty() && !renderer.form().next_role_ends;
  if (is_own) out.end = end;
  if (out.end == kOwnEnd) out.controls = all;
  return out;
}

}  // namespace lumen::model::templates
