// Conversations as tokens: messages through a template, and what users wrote kept apart from what the template wrote,
// so that no text of a user becomes a control token. Proved by tests/model/data/data_mask_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/template/chat_template.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/vocabulary/added_tokens.h"

namespace lumen::model {

// A template for models that carry none (models/chat_templates.toml).
struct NamedTemplate {
  std::string name, text;
  std::vector<std::string> stops;  // strings that end an answer
};
const std::vector<NamedTemplate>& named_templates();

// A template of chats, and how it was found.
struct ChosenTemplate {
  std::string name, text;
  std::vector<std::string> stops;
  ChatTemplate parse() const { return ChatTemplate::parse(text, "chat template '" + name + "'"); }
};
// By name, from a file, or (without a name) the model's own; a model without one is given "plain". Error (usage) when
// it is neither a name nor a file.
ChosenTemplate choose_template(const std::string& name, const Tokenizer& tokenizer);
bool is_template_file(const std::string& name);  // what is no name

// Whether a member of a message holds what is said in it, and not a name.
bool is_said(const std::string& key);

// What a template made of messages.
struct ChatText {
  std::string text;
  struct Part {
    size_t begin = 0, end = 0;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> plain;           // names of control tokens that users wrote: they stay text
  std::vector<size_t> begins, ends;  // where answers were marked
};

// Messages in their normal form (messages.h), in which what reads like a control token stands between marks that no
// message has.
struct MarkedChat {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json more;    // other values for the template (tools, enable_thinking, ...)
  std::string plain, begin, end;  // the marks; the other two are for answers
};

// How answers begin and end, as the template shows it for messages that are known. What an answer ends with is the
// token that the model must produce for it to end, whichever message the template writes it with.
struct AnswerForm {
  std::string opening;                             // what opens an answer to come behind a user's message
  std::optional<TokenId> after_text, after_calls;  // ends an answer; nothing: the template writes no token for it
  bool next_role_ends = false;                     // what ends a text is the beginning of the next message
  std::vector<TokenId> ends;                       // these two, and those of the tokenizer; ascending
};

// The token ids of a text, and where in the text each of them ends.
struct PlacedTokens {
  std::vector<TokenId> ids;
  std::vector<size_t> ends;  // empty where the tokenizer changes text, so that places cannot be told
};

// How a template wants messages that call tools, where it does not take every form.
struct CallStyle {
  bool text_arguments = false;  // the arguments as the text of JSON
  bool null_content = false;    // null, and no empty text, where nothing is said beside the calls
};

class ChatRenderer {
 public:
  // `now`: what templates are told when they ask for the time; null: the machine's clock.
  ChatRenderer(Tokenizer tokenizer, ChatTemplate chat, std::function<std::tm()> now = nullptr);

  // Error when it is no list of messages ([{"role", "content"}, ...]). Of `more`, tools and documents are strings of
  // users, too.
  MarkedChat mark(const nlohmann::ordered_json& messages,
                  const nlohmann::ordered_json& more = nlohmann::ordered_json::object()) const;
  // A text with the marks of `chat` in it, as what they say.
  static ChatText unmarked(const MarkedChat& chat, std::string_view text);

  struct Options {
    size_t count = SIZE_MAX;            // of the messages, from the first one
    bool open_answer = false;           // with the beginning of an answer behind them
    bool mark_answers = false;          // where the template has blocks for what the model says: where they lie
    std::optional<size_t> marked = {};  // or: where the strings of this message lie
  };
  ChatText render(const MarkedChat& chat, const Options& options) const;

  // The tokens of a text from `begin` to `end`, without BOS and EOS put around it.
  std::vector<TokenId> tokens(const ChatText& text, size_t begin, size_t end) const;
  PlacedTokens placed_tokens(const ChatText& text) const;
  // The tokens of all messages, with the beginning of an answer behind them; what begins a text is in front where it
  // belongs there.
  std::vector<TokenId> prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more) const;

  // The first control token that the template wrote at or behind `from`.
  std::optional<AddedTokens::Match> next_control(const ChatText& text, size_t from) const;
  // All of them within a part of the text.
  std::vector<AddedTokens::Match> controls_in(const ChatText& text, const ChatText::Part& part) const;

  bool has_answers() const { return chat_.has_answers(); }
  const AnswerForm& form() const { return form_; }
  std::vector<std::string> control_names() const;
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  std::function<std::tm()> now_;
  AddedTokens controls_;
  CallStyle calls_;
  AnswerForm form_;
};

// The tokenizer of a model that answers by this template: it carries the template, and generation ends where answers
// do. Used alike where chats are trained, served and exported.
Tokenizer with_chat(const Tokenizer& tokenizer, const ChosenTemplate& chosen);

// Tokens of the messages, with the beginning of an answer behind them.
std::vector<TokenId> chat_tokens(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more);

}  // namespace lumen::model
