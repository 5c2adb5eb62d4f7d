#include "model/template/answer_form.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

// What the template is given; nothing of it stands in any template.
constexpr const char *kAsked = "qasked", *kAnswered = "qanswered", *kNext = "qnext", *kKey = "qkey", *kValue = "qvalue";

ordered_json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

ordered_json call(const ordered_json& arguments) {
  ordered_json out = message("assistant", "");
  // Nine letters and digits: some templates insist on such a name of a call.
  out["tool_calls"] = {
      {{"id", "qcallone1"}, {"type", "function"}, {"function", {{"name", "qcalled"}, {"arguments", arguments}}}}};
  return out;
}

// What is printed; nothing where the template refuses.
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

// The end of the answer that comes last in `answered`, in which `mark` is its last text: the last control token behind
// it, or else that with which `next` begins.
struct FoundEnd {
  std::optional<TokenId> id;
  bool is_next = false;
};
FoundEnd end_of(const ChatRenderer& renderer, ordered_json messages, const char* mark, const ordered_json& next) {
  const auto answer = print(renderer, renderer.mark(messages));
  const size_t at = answer ? answer->text.rfind(mark) : std::string::npos;
  if (at == std::string::npos) return {};
  const size_t behind = at + std::string_view(mark).size();
  const Tokenizer& tokenizer = renderer.tokenizer();
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
                                        std::span<const TokenId> ends) {
  std::optional<LastControl> ended, last;
  const auto is_blank = [&](size_t begin, size_t end) {
    return is_space(std::string_view(text.text).substr(begin, end - begin));
  };
  for (size_t at = part.begin;;) {
    const auto control = renderer.next_control(text, at);
    if (!control || control->end > part.end) break;
    at = control->end;
    if (last && !is_blank(last->end, control->begin)) ended.reset();
    last = {control->end, control->id};
    if (!ended && std::find(ends.begin(), ends.end(), control->id) != ends.end()) ended = last;
  }
  if (!last || !is_blank(last->end, part.end)) return std::nullopt;
  return ended ? ended : last;
}

CallStyle learn_call_style(const ChatRenderer& renderer) {
  const ordered_json arguments = {{kKey, kValue}};
  const std::string json = fmt::format("{{\"{}\": \"{}\"}}", kKey, kValue), as_python = fmt::format("{{'{}'", kKey);
  const auto fits = [&](const CallStyle& style) {
    MarkedChat chat = renderer.mark(ordered_json::array({message("user", kAsked), call(arguments)}));
    ordered_json& answer = chat.messages[1];
    if (style.null_content) answer["content"] = nullptr;
    if (style.text_arguments) answer["tool_calls"][0]["function"]["arguments"] = json;
    const auto printed = print(renderer, chat);
    if (!printed) return false;
    const std::string& text = printed->text;
    if (style.text_arguments) return text.find(json) != std::string::npos;
    return text.find(kKey) != std::string::npos && text.find(as_python) == std::string::npos;
  };
  for (const bool null_content : {false, true})
    for (const bool text_arguments : {false, true})
      if (const CallStyle style{text_arguments, null_content}; fits(style)) return style;
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

}  // namespace lumen::model
