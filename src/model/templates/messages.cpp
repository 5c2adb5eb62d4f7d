#include "model/templates/messages.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestArguments = 64;
constexpr std::array<const char*, 3> kThoughts = {"reasoning_content", "reasoning", "thinking"};

[[noreturn]] void wrong(std::string reason, std::string detail = {}) {
  throw MessageFault{std::move(reason), std::move(detail)};
}

bool is_thoughts(const std::string& key) {
  return std::find(kThoughts.begin(), kThoughts.end(), key) != kThoughts.end();
}

// Returns arguments as an object. Some programs encode them as a JSON string twice.
ordered_json arguments_of(const ordered_json& given, const std::string& name) {
  ordered_json out = given;
  for (int times = 0; out.is_string() && times < 2; ++times) {
    const auto text = out.get<std::string>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return ordered_json::object();
    try {
      out = parse_ordered_json(text, "arguments", kDeepestArguments);
    } catch (const Error& error) {
      wrong("the arguments of a call are not valid JSON", fmt::format("'{}': {}", name, error.what()));
    }
  }
  if (out.is_null()) return ordered_json::object();
  if (!out.is_object()) wrong("the arguments of a call are not a JSON object", fmt::format("'{}'", name));
  return out;
}

ordered_json normal_call(const ordered_json& call) {
  if (!call.is_object()) wrong("a call is not an object", call.type_name());
  const auto type = call.find("type");
  if (type != call.end() && !type->is_null() && *type != "function") wrong("a call that is not of a function");
  const auto own = call.find("function");
  const bool wrapped = own != call.end() && own->is_object();
  const ordered_json& function = wrapped ? *own : call;
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string()) wrong("a call without a function name");
  ordered_json out = ordered_json::object();
  if (const auto id = call.find("id"); id != call.end() && !id->is_null()) {
    if (!id->is_string()) wrong("the id of a call is not a string", id->type_name());
    out["id"] = *id;
  }
  out["type"] = "function";
  const auto arguments = function.find("arguments");
  out["function"] = {
      {"name", *name},
      {"arguments", arguments_of(arguments == function.end() ? ordered_json() : *arguments, name->get<std::string>())}};
  return out;
}

ordered_json normal_calls(const ordered_json& calls) {
  if (!calls.is_array()) wrong("\"tool_calls\" is not a list", calls.type_name());
  ordered_json out = ordered_json::array();
  for (const ordered_json& call : calls) out.push_back(normal_call(call));
  return out;
}

// Adds missing names to tool results, from the calls they answer: some templates need them.
void name_results(ordered_json& messages) {
  std::map<std::string, ordered_json> names;
  for (ordered_json& message : messages) {
    if (message.contains("tool_calls"))
      for (const ordered_json& call : message["tool_calls"])
        if (call.contains("id")) names[call["id"].get<std::string>()] = call["function"]["name"];
    if (message["role"] != "tool" || message.contains("name") || !message.contains("tool_call_id")) continue;
    const auto at = names.find(message["tool_call_id"].get<std::string>());
    if (at != names.end()) message["name"] = at->second;
  }
}

// A content with pictures as a list of parts; any other as one string.
ordered_json normal_content(const ordered_json& content, PictureParts pictures) {
  const bool has_pictures = pictures == PictureParts::kept && content.is_array() &&
                            std::any_of(content.begin(), content.end(), is_picture_part);
  if (!has_pictures) return content_text(content, "message");
  ordered_json out = ordered_json::array();
  for (const ordered_json& part : content) {
    if (is_picture_part(part))
      out.push_back({{"type", "image"}});
    else if (std::string text = content_text(ordered_json::array({part}), "message"); !text.empty())
      out.push_back({{"type", "text"}, {"text", std::move(text)}});
  }
  return out;
}

ordered_json normal_message(const ordered_json& given, OtherKeys other, PictureParts pictures) {
  if (!given.is_object()) wrong("a message is not an object", given.type_name());
  const auto role = given.find("role");
  if (role == given.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    wrong("a message without a role");
  ordered_json out = ordered_json::object(), calls = ordered_json::array();
  for (const auto& [key, value] : given.items()) {
    if (key == "content") {
      out[key] = value.is_null() ? ordered_json() : normal_content(value, pictures);
    } else if (value.is_null()) {
      continue;
    } else if (key == "tool_calls") {
      for (ordered_json& call : normal_calls(value)) calls.push_back(std::move(call));
    } else if (key == "function_call") {
      calls.push_back(normal_call(value));
    } else if (key == "role" || key == "name" || key == "tool_call_id" || is_thoughts(key)) {
      if (!value.is_string()) wrong(fmt::format("\"{}\" of a message is not a string", key), value.type_name());
      out[key] = value;
    } else if (other == OtherKeys::kept) {
      out[key] = value;
    } else if (key != "refusal" && key != "annotations") {
      wrong(fmt::format("a message has no \"{}\"", key));
    }
  }
  if (!calls.empty() && *role != "assistant") wrong("calls in a message that is not from an assistant");
  const bool has_other_text = !calls.empty() || !thoughts_of(out).empty();
  const auto content = out.find("content");
  if (content == out.end() || content->is_null()) {
    if (!has_other_text) wrong("a message without content");
    out["content"] = "";
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

}  // namespace

std::string content_text(const ordered_json& content, const char* owner) {
  if (content.is_string()) return content;
  if (!content.is_array()) wrong(fmt::format("a {}'s content is not text", owner), content.type_name());
  std::string out;
  for (const ordered_json& part : content) {
    const bool is_text = part.is_object() && part.value("type", ordered_json("text")) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) wrong(fmt::format("a {} has content other than text", owner));
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

bool is_picture_part(const ordered_json& part) {
  return part.is_object() && part.value("type", ordered_json()) == "image";
}

void put_before(ordered_json& content, const std::string& text) {
  if (text.empty()) return;
  if (content.is_array())
    content.insert(content.begin(), ordered_json{{"type", "text"}, {"text", text}});
  else
    content = text + (content.is_string() ? content.get<std::string>() : std::string());
}

void share_thoughts(ordered_json& message) {
  const std::string thoughts = thoughts_of(message);
  if (thoughts.empty()) return;
  for (const char* key : kThoughts)
    if (!message.contains(key)) message[key] = thoughts;
}

std::string thoughts_of(const ordered_json& message) {
  for (const char* key : kThoughts) {
    const auto value = message.find(key);
    if (value != message.end() && value->is_string() && !value->get_ref<const std::string&>().empty()) return *value;
  }
  return {};
}

ordered_json normal_messages(const ordered_json& messages, OtherKeys other, PictureParts pictures) {
  if (!messages.is_array()) wrong("messages are not a list", messages.type_name());
  ordered_json out = ordered_json::array();
  for (const ordered_json& message : messages) out.push_back(normal_message(message, other, pictures));
  name_results(out);
  return out;
}

}  // namespace lumen::model::templates
