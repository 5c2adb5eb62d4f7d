#include "model/serve/forms/messages.h"

#include "model/serve/hints.h"
#include "model/serve/pictures/picture_parts.h"

namespace lumen::model::serve {
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

void ignore(FieldNotes* notes, const std::string& message, const std::string& param = "messages") {
  if (!notes || notes->is_strict) throw wrong_value(param, message);
  notes->add(message);
}

void known_members(const ordered_json& block, FieldNotes* notes, std::initializer_list<const char*> names) {
  for (const auto& [key, value] : block.items())
    if (std::find(names.begin(), names.end(), key) == names.end() && !value.is_null())
      ignore(notes, "a block has no " + key_in_quotes(key));
}

// The address of a picture: {"source": {"type": "base64", "media_type", "data"}} or {"source": {"type": "url", "url"}}.
std::string picture_address(const ordered_json& block, FieldNotes* notes) {
  known_members(block, notes, {"type", "source", "cache_control"});
  const ordered_json source = block.value("source", ordered_json());
  const ordered_json type = source.is_object() ? source.value("type", ordered_json()) : ordered_json();
  if (type == "url") return text_member(source, "url");
  if (type == "base64") return data_url(text_member(source, "media_type"), text_member(source, "data"));
  throw no_block("the 'source' of an image has the type 'base64' or 'url'");
}

void add_text(const ordered_json& block, FieldNotes* notes, MixedContent* out) {
  if (!block.is_object() || block.value("type", ordered_json()) != "text")
    throw no_block("blocks of this kind are not supported here");
  known_members(block, notes, {"type", "text", "cache_control", "citations"});
  out->add_text(text_member(block, "text"));
}

// A content: a string, or a list of blocks of text, and of pictures where these may be.
ordered_json content_of(const ordered_json& content, FieldNotes* notes, bool with_pictures) {
  if (content.is_null()) return "";
  if (content.is_string()) return content;
  if (!content.is_array()) throw no_block("'content' is a string or a list of blocks");
  MixedContent out;
  for (const auto& block : content) {
    if (with_pictures && block.is_object() && block.value("type", ordered_json()) == "image")
      out.add_picture(picture_address(block, notes));
    else
      add_text(block, notes, &out);
  }
  return out.json();
}

ordered_json call_of(const ordered_json& block, FieldNotes* notes) {
  known_members(block, notes, {"type", "id", "name", "input", "cache_control"});
  if (!block.contains("input") || !block["input"].is_object()) throw no_block("'input' of a call is an object");
  ordered_json call;
  call["id"] = text_member(block, "id");
  call["type"] = "function";
  call["function"] = {{"name", text_member(block, "name")}, {"arguments", json_line(block["input"])}};
  return call;
}

// Blocks that tools of Anthropic's servers write.
bool is_of_server_tool(const std::string& type) {
  return type == "server_tool_use" || (type != "tool_result" && type.ends_with("_tool_result"));
}

// Converts a message; one with tool results becomes several chat messages.
void add_message(const ordered_json& message, FieldNotes* notes, ordered_json* out) {
  if (!message.is_object() || !message.contains("role") || !message.contains("content"))
    throw no_block("a message is an object with 'role' and 'content'");
  known_members(message, notes, {"role", "content"});
  const ordered_json& role = message["role"];
  const ordered_json& content = message["content"];
  const auto known = role.is_string() ? role_of(role.get_ref<const std::string&>()) : std::nullopt;
  if (!known || *known == MessageRole::tool || *known == MessageRole::function)
    throw no_block("the 'role' of a message is 'user', 'assistant', 'system' or 'developer'");
  if (!content.is_array()) {
    if (content.is_null() && role == "user") throw no_block("'content' is a string or a list of blocks");
    out->push_back({{"role", role}, {"content", content_of(content, notes, false)}});
    return;
  }
  ordered_json said = {{"role", role}, {"content", ""}};
  MixedContent mixed;
  bool is_said = false;
  for (const auto& block : content) {
    const ordered_json type = block.is_object() ? block.value("type", ordered_json()) : ordered_json();
    if (type == "tool_result" && role == "user") {
      known_members(block, notes, {"type", "tool_use_id", "content", "is_error", "cache_control"});
      ordered_json result = {{"role", "tool"}, {"tool_call_id", text_member(block, "tool_use_id")}, {"content", ""}};
      if (block.contains("content")) result["content"] = content_of(block["content"], notes, true);
      out->push_back(std::move(result));
    } else if (type == "tool_use" && role == "assistant") {
      said["tool_calls"].push_back(call_of(block, notes));
      is_said = true;
    } else if (type == "thinking" && role == "assistant") {
      known_members(block, notes, {"type", "thinking", "signature", "cache_control"});
      said["reasoning_content"] = said.value("reasoning_content", std::string()) + text_member(block, "thinking");
      is_said = true;
    } else if (type == "redacted_thinking" && role == "assistant") {
      ignore(notes, "blocks of the type 'redacted_thinking' are ignored");
      is_said = true;
    } else if (type.is_string() && is_of_server_tool(type)) {
      ignore(notes, "blocks of the type " + key_in_quotes(type) + " are ignored");
      is_said = true;
    } else if (type == "image" && role == "user") {
      mixed.add_picture(picture_address(block, notes));
      is_said = true;
    } else {
      add_text(block, notes, &mixed);
      is_said = true;
    }
  }
  said["content"] = mixed.json();
  if (is_said || content.empty()) out->push_back(std::move(said));
}

// {"type": "json_schema", "schema"}
ordered_json chat_format(const ordered_json& format) {
  const std::string name = "output_config";
  if (!format.is_object() || format.value("type", ordered_json()) != "json_schema" || !format.contains("schema"))
    throw wrong_value(name, "the 'format' of 'output_config' is {'type': 'json_schema', 'schema': ..}");
  return {{"type", "json_schema"}, {"json_schema", {{"schema", format["schema"]}}}};
}

void read_message_tools(Fields& fields, FieldNotes* notes, ordered_json* chat) {
  if (const ordered_json* tools = fields.find("tools")) {
    if (!tools->is_array()) throw wrong_value("tools", "'tools' must be a list");
    (*chat)["tools"] = ordered_json::array();
    for (const auto& tool : *tools) {
      if (!tool.is_object()) throw wrong_value("tools", "a tool is an object");
      const ordered_json type = tool.value("type", ordered_json("custom"));
      if (!type.is_null() && type != "custom") {
        const std::string name = type.is_string() ? type.get<std::string>() : type.dump();
        ignore(notes, "tools of the type " + key_in_quotes(name) + " are ignored; only functions can be called",
               "tools");
        continue;
      }
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

ordered_json chat_of_messages(const ordered_json& body, bool is_counted, FieldNotes* notes) {
  Fields fields(body, notes);
  ordered_json chat = ordered_json::object(), messages = ordered_json::array();
  if (const ordered_json* system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", content_of(*system, notes, false)}});
  const ordered_json* given = fields.find("messages");
  if (!given || !given->is_array() || given->empty())
    throw wrong_value("messages", "'messages' must be a list of messages");
  for (const auto& message : *given) add_message(message, notes, &messages);
  // In this API an answer continues a last message of the assistant.
  const ordered_json& last = messages.back();
  if (last["role"] == "assistant" && !last.contains("tool_calls") &&
      last["content"].get_ref<const std::string&>().find_first_not_of(" \t\r\n") != std::string::npos)
    chat["continue_final_message"] = true;
  chat["messages"] = std::move(messages);
  read_message_tools(fields, notes, &chat);
  if (!is_counted && !fields.find("max_tokens")) throw wrong_value("max_tokens", "'max_tokens' is missing");
  if (const ordered_json* stops = fields.find("stop_sequences")) {
    if (!stops->is_array()) throw wrong_value("stop_sequences", "'stop_sequences' must be a list of strings");
    chat["stop"] = *stops;
  }
  // Members with the same name in both APIs, and extensions.
  const auto take = [&](const char* same) {
    if (const ordered_json* value = fields.find(same)) chat[same] = *value;
  };
  for (const char* same : {"model", "max_tokens", "temperature", "top_p", "top_k", "stream", "thinking"}) take(same);
  for (const char* same : kExtensions) take(same);
  // {"effort", "format"}
  if (const ordered_json* output = fields.find("output_config"); output && output->is_object()) {
    Fields more(*output, notes);
    if (const ordered_json* effort = more.find("effort")) chat["reasoning_effort"] = *effort;
    if (const ordered_json* format = more.find("format")) chat["response_format"] = chat_format(*format);
    more.settle_others();
  }
  fields.ignore({"metadata", "service_tier", "cache_control"});
  fields.settle_others();
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
  const bool named = output.is_over && output.reason == infer::EndReason::stop_string &&
                     std::find(stops_.begin(), stops_.end(), output.stop) != stops_.end();
  const std::string reason = finish_reason(output);
  out["stop_reason"] = nullptr;
  if (output.is_over)
    out["stop_reason"] = named                    ? "stop_sequence"
                         : reason == "length"     ? "max_tokens"
                         : reason == "tool_calls" ? "tool_use"
                                                  : "end_turn";
  out["stop_sequence"] = named ? ordered_json(output.stop) : ordered_json();
  if (!warnings().empty()) out["warnings"] = warnings();
  out["usage"] = {{"input_tokens", prompt_tokens()}, {"output_tokens", made_tokens()}};
  if (output.is_over) put_schema_report(output, &out);
  return out;
}

ordered_json MessagesReply::whole() const {
  ordered_json out = head();
  const Output& output = output_at(0);
  if (!output.reasoning.empty())
    out["content"].push_back({{"type", "thinking"}, {"thinking", output.reasoning}, {"signature", ""}});
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
    const bool goes_on = is_open_ && kind_ == piece.kind;
    if (piece.kind == CallPiece::Kind::text && !goes_on) begin({{"type", "text"}, {"text", ""}});
    if (piece.kind == CallPiece::Kind::reasoning && !goes_on)
      begin({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    if (piece.kind == CallPiece::Kind::begin)
      begin({{"type", "tool_use"},
             {"id", output_at(0).calls.at(++call).id},
             {"name", piece.text},
             {"input", ordered_json::object()}});
    kind_ = piece.kind;
    if (piece.kind == CallPiece::Kind::text)
      delta({{"type", "text_delta"}, {"text", piece.text}});
    else if (piece.kind == CallPiece::Kind::reasoning)
      delta({{"type", "thinking_delta"}, {"thinking", piece.text}});
    else if (piece.kind == CallPiece::Kind::arguments)
      delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
  }
  return out;
}

std::string MessagesReply::last_events() {
  std::string out = close_block();
  const ordered_json end = head();
  ordered_json told = {{"type", "message_delta"},
                       {"delta", {{"stop_reason", end["stop_reason"]}, {"stop_sequence", end["stop_sequence"]}}},
                       {"usage", {{"output_tokens", made_tokens()}}}};
  if (end.contains("lumen")) told["lumen"] = end["lumen"];
  out += sse("message_delta", told);
  return out + sse("message_stop", {{"type", "message_stop"}});
}

std::string MessagesReply::failed_events(const Refusal& refusal) const {
  return "event: error\ndata: " + messages_error(refusal) + "\n\n";
}

}  // namespace lumen::model::serve
