#include "model/template/chat_vocabulary.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/text/tokenizer/characters.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

constexpr const char* kOwnEnd = "<|endoftext|>";
constexpr size_t kLongestName = 40;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// <|name|>, <name>, </name>, [NAME] or [/NAME] at a place; its size, or 0.
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
  return is_letter(name[0]) || name[0] == '|' || static_cast<unsigned char>(name[0]) >= 0x80 ? end + 1 - at : 0;
}

void take_names(std::string_view text, std::set<std::string>& names) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = name_at(text, at);
    if (size > 0) names.emplace(text.substr(at, size));
    at += std::max<size_t>(1, size);
  }
}

ordered_json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

// Conversations in which everything occurs that templates have names for; each may be refused.
std::vector<ordered_json> conversations() {
  const ordered_json user = message("user", "q"), answer = message("assistant", "q");
  ordered_json thoughtful = answer, call = message("assistant", ""), result = message("tool", "q");
  thoughtful["reasoning_content"] = "q";
  call["tool_calls"] = {
      {{"id", "qcallone1"}, {"type", "function"}, {"function", {{"name", "q"}, {"arguments", {{"q", "q"}}}}}}};
  result["tool_call_id"] = "qcallone1";
  return {ordered_json::array({user, answer, user, answer}),
          ordered_json::array({message("system", "q"), user, answer, user}), ordered_json::array({user, thoughtful}),
          ordered_json::array({user, call, result, answer}), ordered_json::array({user, call, result})};
}

std::set<std::string> names_in(const ChatRenderer& renderer) {
  std::set<std::string> names;
  for (const ordered_json& messages : conversations()) {
    for (const bool open : {false, true}) {
      try {
        take_names(renderer.render(renderer.mark(messages), {.open_answer = open}).text, names);
      } catch (const Error&) {  // alternation is enforced, tools are not known, ..
      }
    }
  }
  return names;
}

// Tags that stand around something (<think> .. </think>) are text that a model writes; only what has no other half, or
// is the beginning and end of texts, is a control token.
std::vector<std::string> without_pairs(const std::set<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (name[0] == '<' && name != "<s>" && name != "</s>") {
      const bool closes = name[1] == '/';
      if (names.contains(closes ? "<" + name.substr(2) : "</" + name.substr(1))) continue;
    }
    out.push_back(name);
  }
  return out;
}

}  // namespace

ChatVocabulary chat_vocabulary(const ChosenTemplate& chosen) {
  const ChatTemplate chat = chosen.parse();
  ChatVocabulary out;
  out.controls = without_pairs(names_in(ChatRenderer(Tokenizer::characters(" "), chat)));
  out.end = kOwnEnd;
  const auto with_own_end = [&] {
    std::vector<std::string> all = out.controls;
    if (std::find(all.begin(), all.end(), kOwnEnd) == all.end()) all.push_back(kOwnEnd);
    return all;
  };
  // What the template writes for the end of texts, it writes for the end of answers, or something of its own.
  const std::vector<std::string> all = with_own_end();
  const ChatRenderer renderer(character_tokenizer(" ", all, kOwnEnd), chat);
  std::string end;
  if (const auto id = renderer.form().after_text) end = renderer.tokenizer().token(*id);
  const bool is_own = !end.empty() && !renderer.form().next_role_ends;
  if (is_own) out.end = end;
  if (out.end == kOwnEnd) out.controls = all;
  return out;
}

}  // namespace lumen::model
