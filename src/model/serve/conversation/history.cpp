#include "model/serve/conversation/history.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestArguments = 64;
constexpr size_t kLongestShown = 64;  // of a name in a description
constexpr std::array<const char*, 10> kMembers = {"role",         "content",       "name",      "tool_calls",
                                                  "tool_call_id", "function_call", "reasoning", "thinking",
                                                  "refusal",      "annotations"};

bool has_type(const ordered_json& part, const char* type) {
  return part.is_object() && part.value("type", ordered_json()) == type;
}

// The strings of a value, joined: text, or a list of parts with text.
std::string all_text(const ordered_json& value) {
  if (value.is_string()) return value;
  std::string out;
  if (value.is_array())
    for (const ordered_json& part : value) out += all_text(part);
  else if (value.is_object())
    for (const char* key : {"text", "thinking", "reasoning", "refusal"})
      if (value.contains(key)) out += all_text(value[key]);
  return out;
}

// Whether arguments are an object, also as a JSON string, and as one that was encoded twice.
bool is_object_text(const ordered_json& arguments) {
  ordered_json value = arguments;
  for (int times = 0; value.is_string() && times < 2; ++times) {
    const std::string text = value.get<std::string>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return true;
    try {
      value = parse_ordered_json(text, "arguments", kDeepestArguments);
    } catch (const Error&) {
      return false;
    }
  }
  return value.is_object() || value.is_null();
}

void repair_call(ordered_json& call, std::vector<std::string>* changes) {
  if (!call.is_object()) return;
  ordered_json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || is_object_text(*arguments)) return;
  const std::string text = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  *arguments = {{"arguments", text}};
  changes->push_back("the arguments of a previous call are not a JSON object; the template gets them as text");
}

void repair_parts(ordered_json& message) {
  ordered_json kept = ordered_json::array();
  std::string thoughts;
  for (const ordered_json& part : message["content"]) {
    if (part.is_null()) continue;
    if (has_type(part, "thinking") || has_type(part, "reasoning"))
      thoughts += all_text(part);
    else if (has_type(part, "refusal"))
      kept.push_back({{"type", "text"}, {"text", all_text(part)}});
    else if (!has_type(part, "redacted_thinking"))
      kept.push_back(part);
  }
  message["content"] = std::move(kept);
  if (!thoughts.empty() && !message.contains("reasoning_content")) message["reasoning_content"] = thoughts;
}

void repair(ordered_json& message, std::vector<std::string>* changes) {
  if (!message.is_object()) return;
  for (const char* nullable : {"content", "tool_calls", "function_call"})
    if (message.contains(nullable) && message[nullable].is_null()) message.erase(nullable);
  const ordered_json role = message.value("role", ordered_json());
  std::vector<std::string> others;
  for (const auto& [key, value] : message.items()) {
    const bool is_known =
        key == "reasoning_content" || std::find(kMembers.begin(), kMembers.end(), key) != kMembers.end();
    if (!is_known) others.push_back(key);
  }
  for (const std::string& key : others) {
    if (!message[key].is_null())
      changes->push_back("'" + key.substr(0, kLongestShown) + "' of a message has no effect here");
    message.erase(key);
  }
  for (const char* key : {"reasoning_content", "reasoning", "thinking"})  // objects of other servers
    if (message.contains(key) && message[key].is_structured()) message[key] = all_text(message[key]);
  if (role == "assistant" && message.contains("content") && message["content"].is_array()) repair_parts(message);
  if (role == "assistant" && message.contains("tool_calls") && message["tool_calls"].is_array())
    for (ordered_json& call : message["tool_calls"]) repair_call(call, changes);
  if (role == "assistant" && message.contains("function_call")) repair_call(message["function_call"], changes);
  const bool may_be_empty = role == "assistant" || role == "tool" || role == "function";
  if (may_be_empty && !message.contains("content")) message["content"] = "";
}

}  // namespace

RepairedMessages repaired_messages(const ordered_json& messages) {
  RepairedMessages out{messages, {}};
  if (!messages.is_array()) return out;
  for (ordered_json& message : out.messages) repair(message, &out.changes);
  std::sort(out.changes.begin(), out.changes.end());
  out.changes.erase(std::unique(out.changes.begin(), out.changes.end()), out.changes.end());
  return out;
}

}  // namespace lumen::model::serve
