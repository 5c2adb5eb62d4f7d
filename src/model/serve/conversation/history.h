// Messages of a request as clients send them back: parts of their content, reasoning in other forms, arguments that a
// token limit cut. Proved by tests/model/serve/conversation/history_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::serve {

// Repairs a list of messages, and returns it with a description of each change that loses or alters something:
//   arguments of calls that are not a JSON object   become {"arguments": TEXT},
//   members that no template reads                  are removed,
//   parts of the type "refusal", "thinking" or "reasoning" become text or "reasoning_content",
//   content that is missing in an answer or a result   becomes "".
// Anything else is left to normal_messages (model/templates/messages.h), which refuses it if it is not a message.
struct RepairedMessages {
  nlohmann::ordered_json messages;
  std::vector<std::string> changes;
};
RepairedMessages repaired_messages(const nlohmann::ordered_json& messages);

}  // namespace lumen::model::serve
