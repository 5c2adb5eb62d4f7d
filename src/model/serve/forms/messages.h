// Anthropic's Messages API: content in blocks of text, calls and results. Proved by tests/model/serve/forms_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/serve/reply.h"

namespace lumen::model {

// The request as a chat's. Refusal as there. `is_counted`: its tokens are counted and nothing is generated.
nlohmann::ordered_json chat_of_messages(const nlohmann::ordered_json& body, bool is_counted);
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

  std::vector<std::string> stops_;  // that the request names, not the template
  int64_t block_ = -1;              // the last one begun
  bool is_open_ = false, is_text_ = false;
};

}  // namespace lumen::model
