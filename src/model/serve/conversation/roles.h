// The one table of roles for all request forms. A role that a template does not render is mapped to one that it
// renders, or refused; no message is dropped. Proved by tests/model/serve/conversation/roles_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "model/templates/chat.h"

namespace lumen::model::serve {

enum class MessageRole { system, developer, user, assistant, tool, function };
std::optional<MessageRole> role_of(std::string_view name);
std::string role_names();  // for error messages: "system, developer, .."

// Where a template renders instructions of one role (system or developer). A role counts as rendered if its text
// appears, and not as if the assistant had written it.
struct RenderedInstructions {
  bool first = false;   // as the first message
  bool second = false;  // after a system message at the beginning
  bool later = false;   // after an answer
};

struct RenderedRoles {
  RenderedInstructions system, developer;
  bool tool = false, function = false;  // results of calls
};

// Error if the template cannot render any conversation within its limits.
RenderedRoles learn_roles(const templates::ChatRenderer& renderer);

// Whether the template renders a message of any other role, such as "ipython". It is not cached, because clients choose
// the name.
bool renders_role(const templates::ChatRenderer& renderer, const std::string& name);

// Maps the roles of messages in normal form to rendered ones:
//   developer   system, unless it is rendered everywhere,
//   system      joined with the system message before it, or put before the text of the next user message (without one:
//               after the text of the last), where the template does not render it,
//   function    tool, unless it is rendered.
// Throws MessageFault for a role that can neither be rendered nor mapped.
nlohmann::ordered_json mapped_roles(const nlohmann::ordered_json& messages, const RenderedRoles& roles,
                                    const templates::ChatRenderer& renderer);

}  // namespace lumen::model::serve
