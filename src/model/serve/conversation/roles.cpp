#include "model/serve/conversation/roles.h"

#include <array>

#include "base/error.h"
#include "model/templates/messages.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};

// Probe strings; they occur in no template.
constexpr const char *kSaid = "qsaidhere", *kAsked = "qaskedhere", *kOther = "qotherhere";

ordered_json message(const std::string& role, const char* content) {
  return {{"role", role}, {"content", content}};
}

// The rendered text; empty if the template raises an error.
std::string printed(const templates::ChatRenderer& renderer, const ordered_json& messages,
                    const ordered_json& more = ordered_json::object()) {
  try {
    return renderer.render(renderer.mark(messages, more), {.open_answer = true}).text;
  } catch (const templates::TemplateOverrun&) {
    throw;
  } catch (const Error&) {
    return {};
  }
}

// Whether the template renders the text of `at` in `messages` under its own role. A template whose last branch is meant
// for answers would otherwise pass instructions off as the assistant's words.
bool renders(const templates::ChatRenderer& renderer, ordered_json messages, size_t at,
             const ordered_json& more = ordered_json::object()) {
  const std::string text = printed(renderer, messages, more);
  if (text.find(kSaid) == std::string::npos) return false;
  const auto as = [&](const char* role) {
    messages[at]["role"] = role;
    return printed(renderer, messages, more);
  };
  return text != as("assistant") || text == as("user");
}

RenderedInstructions learn_instructions(const templates::ChatRenderer& renderer, const char* role) {
  const ordered_json said = message(role, kSaid), asked = message("user", kAsked);
  RenderedInstructions out;
  out.first = renders(renderer, ordered_json::array({said, asked}), 0);
  out.second = renders(renderer, ordered_json::array({message("system", kOther), said, asked}), 1) &&
               printed(renderer, ordered_json::array({message("system", kOther), said, asked})).find(kOther) !=
                   std::string::npos;
  out.later = renders(renderer, ordered_json::array({asked, message("assistant", kOther), said, asked}), 2);
  return out;
}

bool learn_results(const templates::ChatRenderer& renderer, const char* role) {
  ordered_json called = message("assistant", "");
  // Nine letters and digits, because some templates require a call id of this form.
  called["tool_calls"] = {{{"id", "qcallone1"},
                           {"type", "function"},
                           {"function", {{"name", "qcalled"}, {"arguments", {{"qkey", "qvalue"}}}}}}};
  ordered_json result = message(role, kSaid);
  result["tool_call_id"] = "qcallone1";
  result["name"] = "qcalled";
  const ordered_json messages = ordered_json::array({message("user", kAsked), called, result});
  if (renders(renderer, messages, 2)) return true;
  // Some templates write results only of functions that are offered.
  const ordered_json offered = {{"type", "function"},
                                {"function",
                                 {{"name", "qcalled"},
                                  {"description", "q"},
                                  {"parameters", {{"type", "object"}, {"properties", ordered_json::object()}}}}}};
  return renders(renderer, messages, 2, {{"tools", ordered_json::array({offered})}});
}

std::string text_of(const ordered_json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : std::string();
}

// Two strings with an empty line between them.
std::string joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "\n\n" + second;
}

void put_behind(ordered_json& content, const std::string& text) {
  if (content.is_array())
    content.push_back({{"type", "text"}, {"text", "\n\n" + text}});
  else
    content = joined(content.is_string() ? content.get<std::string>() : std::string(), text);
}

[[noreturn]] void not_rendered(const std::string& role) {
  throw templates::MessageFault{
      "this model's chat template writes no messages of the role '" + role.substr(0, 64) + "'", {}};
}

}  // namespace

std::optional<MessageRole> role_of(std::string_view name) {
  for (size_t i = 0; i < kRoles.size(); ++i)
    if (name == kRoles[i]) return MessageRole(i);
  return std::nullopt;
}

std::string role_names() {
  std::string out;
  for (const char* role : kRoles) out += (out.empty() ? "" : ", ") + std::string(role);
  return out;
}

RenderedRoles learn_roles(const templates::ChatRenderer& renderer) {
  const templates::TemplateBudget budget;
  RenderedRoles out;
  out.system = learn_instructions(renderer, "system");
  out.developer = learn_instructions(renderer, "developer");
  out.tool = learn_results(renderer, "tool");
  out.function = learn_results(renderer, "function");
  return out;
}

bool renders_role(const templates::ChatRenderer& renderer, const std::string& name) {
  const templates::TemplateBudget budget;
  const ordered_json asked = message("user", kAsked);
  return renders(renderer, ordered_json::array({asked, message("assistant", kOther), message(name, kSaid)}), 2);
}

ordered_json mapped_roles(const ordered_json& messages, const RenderedRoles& roles,
                          const templates::ChatRenderer& renderer) {
  ordered_json out = ordered_json::array();
  std::string waiting;  // instructions for the next user message
  const auto rendered = [&](const RenderedInstructions& of) {
    if (out.empty()) return of.first;
    return out.size() == 1 && out[0]["role"] == "system" ? of.second : of.later;
  };
  const bool developer = roles.developer.first && roles.developer.second && roles.developer.later;
  for (const ordered_json& given : messages) {
    ordered_json message = given;
    const std::string name = given.at("role").get<std::string>();
    const auto role = role_of(name);
    if (!role && !renders_role(renderer, name)) not_rendered(name);
    if (role == MessageRole::developer && !developer) message["role"] = "system";
    if (role == MessageRole::function && !roles.function) message["role"] = "tool";
    if (message["role"] == "tool" && !roles.tool) not_rendered(name);
    if (message["role"] == "system" && (!waiting.empty() || !rendered(roles.system))) {
      const bool follows = waiting.empty() && !out.empty() && out.back()["role"] == "system";
      if (follows)
        out.back()["content"] = joined(text_of(out.back()), text_of(message));
      else
        waiting = joined(waiting, text_of(message));
      continue;
    }
    if (role == MessageRole::user && !waiting.empty()) {
      const bool is_alone = message["content"] == "";
      templates::put_before(message["content"], is_alone ? waiting : waiting + "\n\n");
      waiting.clear();
    }
    out.push_back(std::move(message));
  }
  if (waiting.empty()) return out;
  // No user message follows.
  if (!out.empty() && out.back()["role"] == "user")
    put_behind(out.back()["content"], waiting);
  else
    out.push_back({{"role", "user"}, {"content", waiting}});
  return out;
}

}  // namespace lumen::model::serve
