// Chat template rendering and tokenization: text from users is kept apart from text of the template, so that no user
// text becomes a control token. Proved by tests/model/data/data_mask_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/templates/chat_template.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/vocabulary/added_tokens.h"

namespace lumen::model::templates {

// A template for models without one (models/chat_templates.toml).
struct NamedTemplate {
  std::string name, text;
  std::vector<std::string> stops;  // strings that end an answer
};
const std::vector<NamedTemplate>& named_templates();

// A chat template and its source.
struct ChosenTemplate {
  std::string name, text;
  std::vector<std::string> stops;
  ChatTemplate parse() const { return ChatTemplate::parse(text, "chat template '" + name + "'"); }
};
// Chooses by name, by file, or (without a name) the model's own template; a model without one gets "plain". Error
// (usage) if `name` is neither a known name nor a file.
ChosenTemplate choose_template(const std::string& name, const text::Tokenizer& tokenizer);
bool is_template_file(const std::string& name);  // true for names of files

// Whether a member of a message has content, as opposed to a name or an id.
bool is_said(const std::string& key);

// Messages rendered by a template.
struct ChatText {
  std::string text;
  struct Part {
    size_t begin = 0, end = 0;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> plain;           // user text that looks like a control token; tokenized as plain text
  std::vector<size_t> begins, ends;  // positions of the answer marks
};

// Messages in normal form (messages.h), in which text that looks like a control token is enclosed in marks that occur
// in no message.
struct MarkedChat {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json more;    // other variables of the template (tools, enable_thinking, ...)
  std::string plain, begin, end;  // the marks: `plain` for such text, the other two for answers
};

// How answers begin and end, determined by rendering known messages. The end is the token that the model must generate
// to end its answer, even if the template writes it as part of the next message.
struct AnswerForm {
  std::string opening;  // the generation prompt after a user message
  std::optional<text::TokenId> after_text,
      after_calls;                  // the token that ends an answer; nullopt: the template writes none
  bool next_role_ends = false;      // the next message's first token ends an answer
  std::vector<text::TokenId> ends;  // these two, and the tokenizer's end tokens; ascending
};

// The token ids of a text, and the end position of each token.
struct PlacedTokens {
  std::vector<text::TokenId> ids;
  std::vector<size_t> ends;  // empty if the tokenizer normalizes text, so that positions are unknown
};

// How a template expects messages with tool calls, if it does not accept every form.
struct CallStyle {
  bool text_arguments = false;  // the arguments as a JSON string
  bool null_content = false;    // null instead of an empty string if there is no text besides the calls
};

// How a prompt ends: with the generation prompt, after the last message, or within the last message, an assistant's, so
// that the model continues it.
enum class PromptEnd { opening, closed, continued };

struct ChatPrompt {
  std::vector<text::TokenId> ids;
  std::string text;
  size_t answer = 0;  // position in `text` where the answer begins: its end, or the text that is continued
};

class ChatRenderer {
 public:
  // `now`: the time for templates that use it; null: the system clock.
  ChatRenderer(text::Tokenizer tokenizer, ChatTemplate chat, std::function<std::tm()> now = nullptr);

  // Error if `messages` is not a list of messages ([{"role", "content"}, ...]). In `more`, tools and documents are user
  // text, too.
  MarkedChat mark(const nlohmann::ordered_json& messages,
                  const nlohmann::ordered_json& more = nlohmann::ordered_json::object()) const;
  // Removes the marks of `chat` from a rendered text, and returns their positions.
  static ChatText unmarked(const MarkedChat& chat, std::string_view text);

  struct Options {
    size_t count = SIZE_MAX;            // number of messages, from the first one
    bool open_answer = false;           // adds the generation prompt
    bool mark_answers = false;          // marks answers in templates with generation blocks
    std::optional<size_t> marked = {};  // or: marks the strings of this message
  };
  ChatText render(const MarkedChat& chat, const Options& options) const;

  // The tokens of a text from `begin` to `end`, without added BOS and EOS.
  std::vector<text::TokenId> tokens(const ChatText& text, size_t begin, size_t end) const;
  PlacedTokens placed_tokens(const ChatText& text) const;
  // The tokens of all messages with the generation prompt, and with BOS if the template or the tokenizer adds it.
  std::vector<text::TokenId> prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more) const;
  // The same with another end. Error if there is no text to be continued.
  ChatPrompt prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more, PromptEnd end) const;

  // The first control token written by the template at or after `from`.
  std::optional<text::AddedTokens::Match> next_control(const ChatText& text, size_t from) const;
  // All control tokens of the template within a part of the text.
  std::vector<text::AddedTokens::Match> controls_in(const ChatText& text, const ChatText::Part& part) const;

  bool has_answers() const { return chat_.has_answers(); }
  const AnswerForm& form() const { return form_; }
  std::vector<std::string> control_names() const;
  const text::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  text::Tokenizer tokenizer_;
  ChatTemplate chat_;
  std::function<std::tm()> now_;
  text::AddedTokens controls_;
  CallStyle calls_;
  AnswerForm form_;
};

// The tokenizer of a model that uses this template: it includes the template, and its end tokens include those of
// answers. Training, serving and export all use it.
text::Tokenizer with_chat(const text::Tokenizer& tokenizer, const ChosenTemplate& chosen);

// Tokens of the messages, with the generation prompt.
std::vector<text::TokenId> chat_tokens(const text::Tokenizer& tokenizer, const ChatTemplate& chat,
                                       const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more);

}  // namespace lumen::model::templates
