#include "model/serve/forms/messages.h"

#include "model/serve/fields.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

std::string sse(const char* name, const ordered_json& data) {
  return std::string("event: ") + name + "\ndata: " + json_line(data) + "\n\n";
}

Refusal no_block(const std::string& what) {
  return wrong_value("messages", what);
}

const std::string& text_member(const ordered_json& block, const char* name) {
  const auto at = block.find(name);
  if (at == block.end() || !at->is_string()) throw no_block(fmt::format("a block without the string '{}'", name));
  return at->get_ref<const std::string&>();
}

void known_members(const ordered_json& block, std::initializer_list<const char*> names) {
  for (const auto& [key, value] : block.items())
    if (std::find(names.begin(), names.end(), key) == names.end() && !value.is_null())
      throw no_block("a block has no " + key_in_quotes(key));
}

// The text of a content: a string, or a list of text blocks.
std::string joined_text(const ordered_json& content) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw no_block("'content' is a string or a list of blocks");
  std::string out;
  for (const auto& block : content) {
    if (!block.is_object() || block.value("type", ordered_json()) != "text")
      throw no_block("blocks of this kind are not supported here");
    known_members(block, {"type", "text", "cache_control", "citations"});
    out += text_member(block, "text");
  }
  return out;
}

ordered_json call_of(const ordered_json& block) {
  known_members(block, {"type", "id", "name", "input", "cache_control"});
  if (!block.contains("input") || !block["input"].is_object()) throw no_block("'input' of a call is an object");
  ordered_json call;
  call["id"] = text_member(block, "id");
  call["type"] = "function";
  call["function"] = {{"name", text_member(block, "name")}, {"arguments", json_line(block["input"])}};
  return call;
}

// Converts a message; one with tool results becomes several chat messages.
void add_message(const ordered_json& message, ordered_json* out) {
  if (!message.is_object() || !message.contains("role") || !message.contains("content"))
    throw no_block("a message is an object with 'role' and 'content'");
  known_members(message, {"role", "content"});
  const ordered_json& role = message["role"];
  const ordered_json& content = message["content"];
  if (role != "user" && role != "assistant") throw no_block("the 'role' of a message is 'user' or 'assistant'");
  if (!content.is_array()) {
    out->push_back({{"role", role}, {"content", joined_text(content)}});
    return;
  }
  ordered_json said = {{"role", role}, {"content", ""}};
  bool is_said = false;
  for (const auto& block : content) {
    const ordered_json type = block.is_object() ? block.value("type", ordered_json()) : ordered_json();
    if (type == "tool_result" && role == "user") {
      known_members(block, {"type", "tool_use_id", "content", "is_error", "cache_control"});
      out->push_back({{"role", "tool"},
                      {"tool_call_id", text_member(block, "tool_use_id")},
                      {"content", block.contains("content") ? joined_text(block["content"]) : std::string()}});
    } else if (type == "tool_use" && role == "assistant") {
      said["tool_calls"].push_back(call_of(block));
      is_said = true;
    } else {
      said["content"] = said["content"].get<std::string>() + joined_text(ordered_json::array({block}));
      is_said = true;
    }
  }
  if (is_said || content.empty()) out->push_back(std::move(said));
}

void read_message_tools(Fields& fields, ordered_json* chat) {
  if (const ordered_json* tools = fields.find("tools")) {
    if (!tools->is_array()) throw wrong_value("tools", "'tools' must be a list");
    (*chat)["tools"] = ordered_json::array();
    for (const auto& tool : *tools) {
      if (!tool.is_object() || tool.value("type", ordered_json("custom")) != "custom")
        throw wrong_value("tools", "tools of this kind are not supported");
      ordered_json function;
      for (const auto& [key, value] : tool.items()) {
        if (key == "input_schema")
          function["parameters"] = value;
        else if (key != "type" && key != "cache_control")
          function[key] = value;
      }
      (*chat)["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const ordered_json* choice = fields.find("tool_choice");
  if (!choice) return;
  if (!choice->is_object()) throw wrong_value("tool_choice", "'tool_choice' must be an object");
  const ordered_json type = choice->value("type", ordered_json());
  if (type == "auto" || type == "none")
    (*chat)["tool_choice"] = type;
  else if (type == "any")
    (*chat)["tool_choice"] = "required";
  else if (type == "tool")
    (*chat)["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice->value("name", ordered_json())}}}};
  else
    throw wrong_value("tool_choice", "'tool_choice' has the type 'auto', 'any', 'tool' or 'none'");
  if (choice->value("disable_parallel_tool_use", ordered_json()) == true) (*chat)["parallel_tool_calls"] = false;
}

const char* error_type(int status) {
  return status == 401   ? "authentication_error"
         : status == 403 ? "permission_error"
         : status == 404 ? "not_found_error"
         : status == 413 ? "request_too_large"
         : status == 429 ? "rate_limit_error"
         : status == 503 ? "overloaded_error"
         : status >= 500 ? "api_error"
                         : "invalid_request_error";
}

}  // namespace

ordered_json chat_of_messages(const ordered_json& body, bool is_counted) {
  Fields fields(body);
  ordered_json chat = ordered_json::object(), messages = ordered_json::array();
  if (const ordered_json* system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", joined_text(*system)}});
  const ordered_json* given = fields.find("messages");
  if (!given || !given->is_array() || given->empty())
    throw wrong_value("messages", "'messages' must be a list of messages");
  for (const auto& message : *given) add_message(message, &messages);
  chat["messages"] = std::move(messages);
  read_message_tools(fields, &chat);
  if (!is_counted && !fields.find("max_tokens")) throw wrong_value("max_tokens", "'max_tokens' is missing");
  if (const ordered_json* stops = fields.find("stop_sequences")) {
    if (!stops->is_array()) throw wrong_value("stop_sequences", "'stop_sequences' must be a list of strings");
    chat["stop"] = *stops;
  }
  // Members with the same name in both APIs, and extensions.
  for (const char* same :
       {"model", "max_tokens", "temperature", "top_p", "top_k", "stream", "seed", "min_p", "ignore_eos"})
    if (const ordered_json* value = fields.find(same)) chat[same] = *value;
  if (const ordered_json* thinking = fields.find("thinking"))
    if (!thinking->is_object() || thinking->value("type", ordered_json()) != "disabled")
      throw Refusal(400, "'thinking' is not supported", "thinking", "unsupported_parameter");
  fields.ignore({"metadata", "service_tier"});
  fields.refuse_others();
  return chat;
}

std::string messages_error(const Refusal& refusal) {
  ordered_json out;
  out["type"] = "error";
  out["error"] = {{"type", error_type(refusal.status)}, {"message", refusal.what()}};
  return json_line(out);
}

MessagesReply::MessagesReply(const GenerationRequest& request, const ServedModel& model, int64_t created)
    : Reply(request, model, created), stops_(request.generate.stops) {
  rename(reply_id("msg_"));
  stops_.resize(stops_.size() - std::min(stops_.size(), model.chat_stops.size()));
}

ordered_json MessagesReply::head() const {
  ordered_json out;
  out["id"] = id();
  out["type"] = "message";
  out["role"] = "assistant";
  out["model"] = model().name;
  out["content"] = ordered_json::array();
  const Output& output = output_at(0);
  const bool named = output.is_over && output.reason == EndReason::stop_string &&
                     std::find(stops_.begin(), stops_.end(), output.stop) != stops_.end();
  const std::string reason = finish_reason(output);
  out["stop_reason"] = nullptr;
  if (output.is_over)
    out["stop_reason"] = named                    ? "stop_sequence"
                         : reason == "length"     ? "max_tokens"
                         : reason == "tool_calls" ? "tool_use"
                                                  : "end_turn";
  out["stop_sequence"] = named ? ordered_json(output.stop) : ordered_json();
  out["usage"] = {{"input_tokens", prompt_tokens()}, {"output_tokens", made_tokens()}};
  if (output.is_over) put_schema_report(output, &out);
  return out;
}

ordered_json MessagesReply::whole() const {
  ordered_json out = head();
  const Output& output = output_at(0);
  if (!output.text.empty() || output.calls.empty()) out["content"].push_back({{"type", "text"}, {"text", output.text}});
  for (const Call& call : output.calls) {
    const ordered_json input = ordered_json::parse(call.arguments, nullptr, false);
    if (input.is_discarded()) continue;  // truncated by the token limit, as the stop reason shows
    out["content"].push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input}});
  }
  return out;
}

std::string MessagesReply::first_events() {
  ordered_json start;
  start["type"] = "message_start";
  start["message"] = head();
  return sse("message_start", start);
}

std::string MessagesReply::close_block() {
  if (!is_open_) return {};
  is_open_ = false;
  return sse("content_block_stop", {{"type", "content_block_stop"}, {"index", block_}});
}

std::string MessagesReply::events(Delta part) {
  auto call = std::ssize(output_at(0).calls) - 1;
  const std::vector<CallPiece> pieces = take(part);
  std::string out;
  const auto begin = [&](ordered_json block) {
    out += close_block();
    ++block_;
    is_open_ = true;
    out += sse("content_block_start",
               {{"type", "content_block_start"}, {"index", block_}, {"content_block", std::move(block)}});
  };
  const auto delta = [&](ordered_json what) {
    out += sse("content_block_delta", {{"type", "content_block_delta"}, {"index", block_}, {"delta", std::move(what)}});
  };
  for (const CallPiece& piece : pieces) {
    const bool is_text = piece.kind == CallPiece::Kind::text;
    if (is_text && !(is_open_ && is_text_)) begin({{"type", "text"}, {"text", ""}});
    if (piece.kind == CallPiece::Kind::begin)
      begin({{"type", "tool_use"},
             {"id", output_at(0).calls.at(++call).id},
             {"name", piece.text},
             {"input", ordered_json::object()}});
    is_text_ = is_text;
    if (is_text)
      delta({{"type", "text_delta"}, {"text", piece.text}});
    else if (piece.kind == CallPiece::Kind::arguments)
      delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
  }
  return out;
}

std::string MessagesReply::last_events() {
  std::string out = close_block();
  const ordered_json end = head();
  out +=
      sse("message_delta", {{"type", "message_delta"},
                            {"delta", {{"stop_reason", end["stop_reason"]}, {"stop_sequence", end["stop_sequence"]}}},
                            {"usage", {{"output_tokens", made_tokens()}}}});
  return out + sse("message_stop", {{"type", "message_stop"}});
}

std::string MessagesReply::failed_events(const Refusal& refusal) const {
  return "event: error\ndata: " + messages_error(refusal) + "\n\n";
}

}  // namespace lumen::model
