#include "model/serve/pictures/picture_chat.h"

#include "base/error.h"
#include "model/templates/messages.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAsked = "qaskedhere";  // occurs in no template

// A Unicode noncharacter that occurs in no message.
std::string unused_mark(const ordered_json& messages) {
  const std::string all = messages.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  for (char32_t c = 0xfdef; c >= 0xfdd0; --c) {
    std::string mark;
    text::utf8_append(mark, c);
    if (all.find(mark) == std::string::npos) return mark;
  }
  throw user_error("the messages use every Unicode noncharacter");
}

// Contents with pictures as strings, in which each picture is `mark`.
ordered_json as_strings(ordered_json messages, const std::string& mark) {
  for (ordered_json& message : messages) {
    if (!message["content"].is_array()) continue;
    std::string content;
    for (const ordered_json& part : message["content"])
      content += templates::is_picture_part(part) ? mark : part["text"].get_ref<const std::string&>();
    message["content"] = content;
  }
  return messages;
}

// Replaces all that the template wrote; words of users that look like it stay.
void replace_written(templates::ChatText& text, const std::string& from, const std::string& to) {
  if (from.empty() || from == to) return;
  const auto is_plain = [&](size_t at) {
    for (const templates::ChatText::Part& part : text.plain)
      if (at < part.end && part.begin < at + from.size()) return true;
    return false;
  };
  const auto move = [&](size_t& position, size_t at) {
    if (position > at) position = position - from.size() + to.size();
  };
  for (size_t at = text.text.find(from); at != std::string::npos; at = text.text.find(from, at)) {
    if (is_plain(at)) {
      at += from.size();
      continue;
    }
    text.text.replace(at, from.size(), to);
    for (templates::ChatText::Part& part : text.plain) {
      move(part.begin, at);
      move(part.end, at);
    }
    for (std::vector<size_t>* list : {&text.begins, &text.ends})
      for (size_t& position : *list) move(position, at);
    at += to.size();
  }
}

}  // namespace

bool writes_pictures(const templates::ChatRenderer& renderer) {
  const templates::TemplateBudget budget;
  const ordered_json said = {{"type", "text"}, {"text", kAsked}}, picture = {{"type", "image"}};
  const auto printed = [&](const ordered_json& content) -> std::string {
    templates::MarkedChat chat = renderer.mark(ordered_json::array({{{"role", "user"}, {"content", kAsked}}}));
    chat.messages[0]["content"] = content;
    try {
      std::string text = renderer.render(chat, {}).text;
      // Some templates print a list as Python does.
      const bool is_code = text.find("'type'") != std::string::npos || text.find("\"type\"") != std::string::npos;
      return is_code || text.find(kAsked) == std::string::npos ? std::string() : text;
    } catch (const templates::TemplateOverrun&) {
      throw;
    } catch (const Error&) {
      return {};
    }
  };
  const std::string with_picture = printed(ordered_json::array({picture, said}));
  return !with_picture.empty() && with_picture != printed(ordered_json::array({said}));
}

templates::ChatPrompt picture_prompt(const templates::ChatRenderer& renderer, const ordered_json& messages,
                                     const ordered_json& more, templates::PromptEnd end, const arch::PictureText& how) {
  const bool is_written = writes_pictures(renderer);
  const std::string mark = is_written ? how.written : unused_mark(messages);
  const templates::MarkedChat chat = renderer.mark(is_written ? messages : as_strings(messages, mark), more);
  const bool continues = end == templates::PromptEnd::continued;
  templates::ChatRenderer::Options options{.open_answer = end == templates::PromptEnd::opening};
  if (continues) {
    if (chat.messages.back()["role"] != "assistant")
      throw user_error("only a last message of the assistant can be continued");
    options.marked = chat.messages.size() - 1;
  }
  templates::ChatText text = renderer.render(chat, options);
  if (continues) {
    if (text.begins.empty() || text.ends.empty()) throw user_error("the last message has no text to be continued");
    text.text.resize(text.ends.back());
  }
  replace_written(text, mark, how.mark);
  templates::ChatPrompt out{renderer.tokens(text, 0, text.text.size()), text.text,
                            continues ? text.begins.back() : text.text.size()};
  const auto bos = renderer.tokenizer().bos();
  if (renderer.tokenizer().adds_bos() && bos && (out.ids.empty() || out.ids.front() != *bos))
    out.ids.insert(out.ids.begin(), *bos);
  return out;
}

}  // namespace lumen::model::serve
