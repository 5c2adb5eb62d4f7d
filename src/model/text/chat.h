// Conversations as tokens: messages through a template, and what users wrote kept apart from what the template wrote,
// so that no text of a user becomes a control token. Proved by tests/model/chat_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"

namespace lumen::model {

// A template for models that carry none (models/chat_templates.toml).
struct NamedTemplate {
  std::string name, text;
  std::vector<std::string> stops;  // texts that end an answer
};
const std::vector<NamedTemplate>& named_templates();

// Tokens of the messages ([{"role", "content"}, ...]), with the beginning of an answer behind them. `more`: other
// values for the template (tools, enable_thinking, ...).
std::vector<TokenId> chat_tokens(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& more);

}  // namespace lumen::model
