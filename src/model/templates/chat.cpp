#include "model/templates/chat.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/toml.h"
#include "model/templates/answer_form.h"
#include "model/templates/messages.h"
#include "model/templates/template_value.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

std::vector<NamedTemplate> read_templates() {
  std::vector<NamedTemplate> out;
  for (const embedded::File& file : embedded::models()) {
    if (file.path != "models/chat_templates.toml") continue;
    const Toml toml = Toml::parse(std::string(file.text), std::string(file.path));
    for (const Toml& row : toml.tables("template"))
      out.push_back({row.text("name"), row.text("text"), row.texts("stops")});
    toml.refuse_unknown();
  }
  return out;
}

}  // namespace

const std::vector<NamedTemplate>& named_templates() {
  static const std::vector<NamedTemplate> templates = read_templates();
  return templates;
}

ChosenTemplate choose_template(const std::string& name, const text::Tokenizer& tokenizer) {
  if (const std::string& own = tokenizer.chat_template(); name.empty() && !own.empty()) {
    const auto& known = named_templates();
    const auto same = std::find_if(known.begin(), known.end(), [&](const auto& t) { return t.text == own; });
    return {"the model's own", own, same == known.end() ? std::vector<std::string>() : same->stops};
  }
  std::string known;
  for (const NamedTemplate& t : named_templates()) {
    if (t.name == (name.empty() ? "plain" : name)) return {t.name, t.text, t.stops};
    known += (known.empty() ? "" : ", ") + t.name;
  }
  std::error_code error;
  if (!std::filesystem::exists(name, error))
    throw Error(Exit::usage, fmt::format("--chat-template {}: neither a file nor a name", name), "names: " + known);
  return {name, read_file(name, 1 << 20), {}};
}

bool is_template_file(const std::string& name) {
  const auto& known = named_templates();
  return !name.empty() && std::none_of(known.begin(), known.end(), [&](const auto& t) { return t.name == name; });
}

bool is_said(const std::string& key) {
  return key != "role" && key != "type" && key != "id" && key != "name" && key != "tool_call_id";
}

namespace {

// Applies `change` to every string of a value.
template <typename Change>
void each_text(ordered_json& value, const Change& change) {
  if (value.is_string()) {
    value = change(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (auto& item : value) each_text(item, change);
  }
}

template <typename See>
void see_strings(const ordered_json& value, const See& see) {
  if (value.is_string()) {
    see(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (const auto& item : value) see_strings(item, see);
  }
}

// Unicode noncharacters (from U+FDD0 on) that occur in no string of the messages.
std::vector<std::string> free_marks(const ordered_json& messages, const ordered_json& more, size_t count) {
  std::vector<std::string> out;
  for (char32_t c = 0xfdd0; c <= 0xfdef && out.size() < count; ++c) {
    std::string mark;
    text::utf8_append(mark, c);
    bool used = false;
    const auto see = [&](const std::string& text) { used |= text.find(mark) != std::string::npos; };
    see_strings(messages, see);
    see_strings(more, see);
    if (!used) out.push_back(std::move(mark));
  }
  if (out.size() < count) throw user_error("the messages use every Unicode noncharacter");
  return out;
}

void mark_said(ordered_json& value, const std::string& begin, const std::string& end) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    constexpr const char* kSpace = " \t\r\n\v\f";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == std::string::npos) return;
    const size_t last = text.find_last_not_of(kSpace) + 1;
    value = text.substr(0, first) + begin + text.substr(first, last - first) + end + text.substr(last);
  } else if (value.is_object()) {
    for (auto& [key, item] : value.items())
      if (is_said(key)) mark_said(item, begin, end);
  } else if (value.is_array()) {
    for (auto& item : value) mark_said(item, begin, end);
  }
}

void apply(const CallStyle& style, ordered_json& message) {
  if (!message.contains("tool_calls")) return;
  if (style.null_content && message["content"] == "") message["content"] = nullptr;
  if (!style.text_arguments) return;
  for (ordered_json& call : message["tool_calls"])
    call["function"]["arguments"] = template_json(Value::from_json(call["function"]["arguments"]), {});
}

}  // namespace

ChatRenderer::ChatRenderer(text::Tokenizer tokenizer, ChatTemplate chat, std::function<std::tm()> now)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), now_(std::move(now)) {
  for (text::TokenId id = 0; id < tokenizer_.size(); ++id) {
    if (tokenizer_.kind(id) == text::TokenKind::control)
      controls_.add({.id = id, .content = std::string(tokenizer_.token(id)), .control = true});
  }
  const TemplateBudget budget;
  calls_ = learn_call_style(*this);
  form_ = learn_answer_form(*this);
}

MarkedChat ChatRenderer::mark(const ordered_json& messages, const ordered_json& more) const {
  MarkedChat out;
  try {
    out.messages = normal_messages(messages, OtherKeys::kept, PictureParts::kept);
  } catch (const MessageFault& fault) {
    throw user_error("{}{}{}", fault.reason, fault.detail.empty() ? "" : ": ", fault.detail);
  }
  out.more = more;
  std::vector<std::string> marks = free_marks(out.messages, more, 3);
  out.plain = std::move(marks[0]);
  out.begin = std::move(marks[1]);
  out.end = std::move(marks[2]);
  const auto keep_apart = [&](const std::string& text) {
    std::string safe;
    size_t at = 0;
    for (text::AddedTokens::Match match; controls_.find(text, at, true, &match); at = match.end) {
      safe.append(text, at, match.begin - at);
      safe += out.plain + text.substr(match.begin, match.end - match.begin) + out.plain;
    }
    return safe.append(text, at);
  };
  for (ordered_json& message : out.messages) {
    share_thoughts(message);
    apply(calls_, message);
    for (auto& [key, value] : message.items())
      if (key != "role") each_text(value, keep_apart);
  }
  for (const char* key : {"tools", "documents"})
    if (const auto value = out.more.find(key); value != out.more.end()) each_text(*value, keep_apart);
  return out;
}

ChatText ChatRenderer::render(const MarkedChat& chat, const Options& options) const {
  const auto name = [&](std::optional<text::TokenId> id) {
    return id ? std::string(tokenizer_.token(*id)) : std::string();
  };
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < std::min(options.count, chat.messages.size()); ++i) {
    messages.push_back(chat.messages[i]);
    if (options.marked == i) mark_said(messages.back(), chat.begin, chat.end);
  }
  ordered_json context = {{"messages", std::move(messages)},
                          {"tools", nullptr},
                          {"documents", nullptr},
                          {"add_generation_prompt", options.open_answer},
                          {"bos_token", name(tokenizer_.bos())},
                          {"eos_token", name(tokenizer_.eos())}};
  for (const auto& [key, value] : chat.more.items()) context[key] = value;
  const AnswerMarks marks{chat.begin, chat.end, chat.plain, options.mark_answers};
  // Some templates iterate over the tools without testing whether there are any.
  const auto printed = [&] {
    try {
      return chat_.render(context, now_, marks);
    } catch (const TemplateOverrun&) {
      throw;
    } catch (const Error&) {
      if (!context["tools"].is_null()) throw;
      context["tools"] = ordered_json::array();
      try {
        return chat_.render(context, now_, marks);
      } catch (const Error&) {  // the first error is more informative
      }
      throw;
    }
  };
  return unmarked(chat, printed());
}

ChatText ChatRenderer::unmarked(const MarkedChat& chat, std::string_view printed) {
  ChatText out;
  bool plain = false;
  for (size_t at = 0; at < printed.size();) {
    const auto is = [&](const std::string& mark) { return printed.compare(at, mark.size(), mark) == 0; };
    // All marks begin with the same byte, 0xef.
    if (printed[at] != chat.plain[0] || !(is(chat.plain) || is(chat.begin) || is(chat.end))) {
      out.text += printed[at++];
      continue;
    }
    if (is(chat.begin)) {
      out.begins.push_back(out.text.size());
    } else if (is(chat.end)) {
      out.ends.push_back(out.text.size());
    } else if (plain) {
      out.plain.back().end = out.text.size();
      plain = false;
    } else {
      out.plain.push_back({out.text.size(), out.text.size()});
      plain = true;
    }
    at += chat.plain.size();
  }
  if (plain) out.plain.back().end = out.text.size();
  return out;
}

namespace {

// Calls `see(begin, end, is_plain)` for the parts of a text that are tokenized separately.
template <typename See>
void each_part(const ChatText& text, size_t begin, size_t end, const See& see) {
  size_t at = begin;
  for (const ChatText::Part& part : text.plain) {
    const size_t from = std::clamp(part.begin, at, end), to = std::clamp(part.end, from, end);
    if (from == to) continue;
    if (at < from) see(at, from, false);
    see(from, to, true);
    at = to;
  }
  if (at < end) see(at, end, false);
}

}  // namespace

std::vector<text::TokenId> ChatRenderer::tokens(const ChatText& text, size_t begin, size_t end) const {
  std::vector<text::TokenId> out;
  each_part(text, begin, end, [&](size_t from, size_t to, bool plain) {
    const auto ids = tokenizer_.encode(std::string_view(text.text).substr(from, to - from), {.parse_special = !plain});
    out.insert(out.end(), ids.begin(), ids.end());
  });
  return out;
}

PlacedTokens ChatRenderer::placed_tokens(const ChatText& text) const {
  PlacedTokens out;
  bool known = true;
  each_part(text, 0, text.text.size(), [&](size_t from, size_t to, bool plain) {
    const std::string_view part = std::string_view(text.text).substr(from, to - from);
    const auto ids = tokenizer_.encode(part, {.parse_special = !plain});
    size_t at = 0;
    const auto skip_space = [&] {
      const size_t before = at;
      while (at < part.size() && std::string_view(" \t\r\n").find(part[at]) != std::string_view::npos) ++at;
      return at > before;
    };
    bool near_control = false;
    for (size_t i = 0; i < ids.size() && known; ++i) {
      const std::string said = tokenizer_.bytes(ids[i]);
      const bool control = tokenizer_.kind(ids[i]) == text::TokenKind::control;
      std::string_view rest = said;
      // Word-based vocabularies add a space before the first word of a text, and some tokens absorb adjacent spaces.
      if (!part.substr(at).starts_with(rest) && (i == 0 || near_control) && rest.starts_with(' '))
        rest.remove_prefix(1);
      if (!part.substr(at).starts_with(rest) && (near_control || control) && skip_space()) rest = said;
      known = part.substr(at).starts_with(rest);
      at += rest.size();
      near_control = control;
      out.ends.push_back(from + at);
    }
    if (near_control) skip_space();
    known = known && at == part.size();
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  });
  if (!known) out.ends.clear();
  return out;
}

std::optional<text::AddedTokens::Match> ChatRenderer::next_control(const ChatText& text, size_t from) const {
  text::AddedTokens::Match match;
  for (size_t at = from; controls_.find(text.text, at, true, &match); at = match.end) {
    const bool plain = std::any_of(text.plain.begin(), text.plain.end(), [&](const ChatText::Part& part) {
      return match.begin < part.end && part.begin < match.end;
    });
    if (!plain) return match;
  }
  return std::nullopt;
}

std::vector<text::AddedTokens::Match> ChatRenderer::controls_in(const ChatText& text,
                                                                const ChatText::Part& part) const {
  std::vector<text::AddedTokens::Match> out;
  auto control = next_control(text, part.begin);
  while (control && control->end <= part.end) {
    out.push_back(*control);
    control = next_control(text, out.back().end);
  }
  return out;
}

std::vector<std::string> ChatRenderer::control_names() const {
  std::vector<std::string> out;
  for (text::TokenId id = 0; id < tokenizer_.size(); ++id)
    if (tokenizer_.kind(id) == text::TokenKind::control) out.emplace_back(tokenizer_.token(id));
  return out;
}

std::vector<text::TokenId> ChatRenderer::prompt(const ordered_json& messages, const ordered_json& more) const {
  return prompt(messages, more, PromptEnd::opening).ids;
}

ChatPrompt ChatRenderer::prompt(const ordered_json& messages, const ordered_json& more, PromptEnd end) const {
  const MarkedChat chat = mark(messages, more);
  // Here no one has their rows.
  for (const ordered_json& message : chat.messages)
    if (message["content"].is_array()) throw user_error("a message has content other than text");
  Options options{.open_answer = end == PromptEnd::opening};
  if (end == PromptEnd::continued) {
    if (chat.messages.empty() || chat.messages.back()["role"] != "assistant")
      throw user_error("only a last message of the assistant can be continued");
    options.marked = chat.messages.size() - 1;
  }
  ChatText text = render(chat, options);
  size_t answer = text.text.size();
  if (end == PromptEnd::continued) {
    if (text.begins.empty() || text.ends.empty()) throw user_error("the last message has no text to be continued");
    answer = text.begins.back();
    text.text.resize(text.ends.back());
  }
  ChatPrompt out{tokens(text, 0, text.text.size()), text.text, answer};
  // Templates usually write BOS themselves; otherwise the tokenizer's setting decides.
  const auto bos = tokenizer_.bos();
  if (tokenizer_.adds_bos() && bos && (out.ids.empty() || out.ids.front() != *bos))
    out.ids.insert(out.ids.begin(), *bos);
  return out;
}

std::vector<text::TokenId> chat_tokens(const text::Tokenizer& tokenizer, const ChatTemplate& chat,
                                       const ordered_json& messages, const ordered_json& more) {
  return ChatRenderer(tokenizer, chat).prompt(messages, more);
}

text::Tokenizer with_chat(const text::Tokenizer& tokenizer, const ChosenTemplate& chosen) {
  const text::Tokenizer out =
      tokenizer.chat_template() == chosen.text ? tokenizer : tokenizer.with_chat_template(chosen.text);
  const std::vector<text::TokenId> ends = ChatRenderer(out, chosen.parse()).form().ends;
  return ends == out.end_of_generation() ? out : out.with_ends(ends);
}

}  // namespace lumen::model::templates
