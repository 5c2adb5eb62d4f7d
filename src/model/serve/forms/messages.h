// Anthropic's Messages API: content in blocks of text, tool calls and tool results. Proved by
// tests/model/serve/forms_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/serve/reply.h"

namespace lumen::model::serve {

// Converts the request to a chat request. Throws Refusal for invalid requests. `is_counted`: only its tokens are
// counted, nothing is generated. `notes`: gets the parts without effect; null: they are refused.
nlohmann::ordered_json chat_of_messages(const nlohmann::ordered_json& body, bool is_counted,
                                        FieldNotes* notes = nullptr);
// {"type": "error", "error": {"type", "message"}}
std::string messages_error(const Refusal& refusal);

class MessagesReply : public Reply {
 public:
  MessagesReply(const GenerationRequest& request, const ServedModel& model, int64_t created);
  nlohmann::ordered_json whole() const override;
  std::string first_events() override;
  std::string events(Delta delta) override;
  std::string last_events() override;
  std::string failed_events(const Refusal& refusal) const override;

 private:
  nlohmann::ordered_json head() const;
  std::string close_block();

  std::vector<std::string> stops_;  // stop strings of the request, without the template's
  int64_t block_ = -1;              // the last block started
  bool is_open_ = false;
  CallPiece::Kind kind_ = CallPiece::Kind::text;  // of the last block
};

}  // namespace lumen::model::serve
