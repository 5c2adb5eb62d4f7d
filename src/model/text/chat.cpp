#include "model/text/chat.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "model/file/toml.h"
#include "model/text/unicode.h"

namespace lumen::model {
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

// Applies `change` to every text of a value.
template <typename Change>
void each_text(ordered_json& value, const Change& change) {
  if (value.is_string()) {
    value = change(value.get<std::string>());
  } else if (value.is_structured()) {
    for (auto& item : value) each_text(item, change);
  }
}

}  // namespace

const std::vector<NamedTemplate>& named_templates() {
  static const std::vector<NamedTemplate> templates = read_templates();
  return templates;
}

std::vector<TokenId> chat_tokens(const Tokenizer& tokenizer, const ChatTemplate& chat, const ordered_json& messages,
                                 const ordered_json& more) {
  std::vector<std::string> controls;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.kind(id) == TokenKind::control && !tokenizer.token(id).empty())
      controls.emplace_back(tokenizer.token(id));
  }
  std::sort(controls.begin(), controls.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  // What reads like a control token in a message is put between marks that no message has.
  std::string mark;
  for (char32_t c = 0xfdd0; c <= 0xfdef && mark.empty(); ++c) {
    utf8_append(mark, c);
    bool used = false;
    ordered_json copy = messages;
    each_text(copy, [&](const std::string& text) {
      used |= text.find(mark) != std::string::npos;
      return text;
    });
    if (used) mark.clear();
  }
  if (mark.empty()) throw user_error("a message uses every character that is none");
  ordered_json marked = messages;
  for (auto& message : marked) {
    if (!message.is_object()) throw user_error("a message is an object with \"role\" and \"content\"");
    for (auto& [key, value] : message.items()) {
      if (key == "role") continue;
      each_text(value, [&](const std::string& text) {
        std::string out;
        for (size_t at = 0; at < text.size();) {
          const auto found = std::find_if(controls.begin(), controls.end(), [&](const std::string& c) {
            return text[at] == c[0] && text.compare(at, c.size(), c) == 0;
          });
          if (found == controls.end()) {
            out += text[at++];
          } else {
            out += mark + *found + mark;
            at += found->size();
          }
        }
        return out;
      });
    }
  }
  ordered_json context = {{"messages", std::move(marked)},
                          {"tools", nullptr},
                          {"documents", nullptr},
                          {"add_generation_prompt", true},
                          {"bos_token", tokenizer.bos() ? std::string(tokenizer.token(*tokenizer.bos())) : ""},
                          {"eos_token", tokenizer.eos() ? std::string(tokenizer.token(*tokenizer.eos())) : ""}};
  for (const auto& [key, value] : more.items()) context[key] = value;
  const std::string text = chat.render(context);
  std::vector<TokenId> out;
  bool plain = false;
  for (size_t at = 0; at <= text.size(); plain = !plain) {
    const size_t end = std::min(text.find(mark, at), text.size());
    const auto ids = tokenizer.encode(std::string_view(text).substr(at, end - at), {.parse_special = !plain});
    out.insert(out.end(), ids.begin(), ids.end());
    at = end + mark.size();
    if (end == text.size()) break;
  }
  // Templates write BOS themselves; where one does not, the tokenizer's habit counts.
  const auto bos = tokenizer.bos();
  if (tokenizer.adds_bos() && bos && (out.empty() || out.front() != *bos)) out.insert(out.begin(), *bos);
  return out;
}

}  // namespace lumen::model
