#include "model/serve/forms/responses.h"

#include "base/structured/json.h"
#include "model/serve/hints.h"
#include "model/serve/pictures/picture_parts.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

Refusal no_item(const std::string& what) {
  return wrong_value("input", what);
}

void ignore(FieldNotes* notes, const std::string& message, const std::string& param) {
  if (!notes || notes->is_strict) throw Refusal(400, message, param, "unsupported_parameter");
  notes->add(message);
}

// The address of {"type": "input_image", "image_url": ADDRESS}.
std::string picture_address(const ordered_json& part) {
  const auto at = part.find("image_url");
  if (at == part.end() || !at->is_string())
    throw no_item("an 'input_image' has its address in 'image_url'; files are not kept here");
  return *at;
}

ordered_json content_of(const ordered_json& content, bool with_pictures) {
  if (content.is_string()) return content;
  if (content.is_null()) return "";
  if (!content.is_array()) throw no_item("the content of an item is a string or a list of parts");
  MixedContent out;
  for (const auto& part : content) {
    const ordered_json type = part.is_object() ? part.value("type", ordered_json()) : ordered_json();
    if (with_pictures && type == "input_image") {
      out.add_picture(picture_address(part));
      continue;
    }
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" ||
                         type == "reasoning_text" || type == "refusal";
    const char* key = type == "refusal" ? "refusal" : "text";
    if (!is_text || !part.contains(key) || !part[key].is_string())
      throw no_item(with_pictures ? "the parts of an item are text or pictures"
                                  : "only text parts of an item are supported");
    out.add_text(part[key].get_ref<const std::string&>());
  }
  return out.json();
}

std::string content_text(const ordered_json& content) {
  return content_of(content, false);
}

std::string text_of_item(const ordered_json& item, const char* name) {
  const auto at = item.find(name);
  if (at == item.end() || !at->is_string()) throw no_item(fmt::format("an item without the string '{}'", name));
  return *at;
}

// The assistant's message that an item of its answer belongs to: reasoning, text and calls of one answer are one
// message. A message with text is complete for `text`, and one with calls for reasoning.
ordered_json& answer_of(ordered_json* messages, bool is_text, bool is_reasoning) {
  const bool follows = !messages->empty() && messages->back()["role"] == "assistant";
  const bool is_complete = follows && ((is_text || is_reasoning) &&
                                       (messages->back()["content"] != "" || messages->back().contains("tool_calls")));
  if (!follows || is_complete) messages->push_back({{"role", "assistant"}, {"content", ""}});
  return messages->back();
}

void add_item(const ordered_json& item, FieldNotes* notes, ordered_json* messages) {
  if (!item.is_object()) throw no_item("an item of 'input' is an object");
  const ordered_json given = item.value("type", ordered_json());
  const std::string type = given.is_string() ? given.get<std::string>() : given.is_null() ? "message" : given.dump();
  if (type == "message") {
    const std::string role = text_of_item(item, "role");
    const auto known = role_of(role);
    if (!known || *known == MessageRole::tool || *known == MessageRole::function)
      throw no_item("the 'role' of a message is 'user', 'assistant', 'system' or 'developer'");
    if (!item.contains("content") && role != "assistant") throw no_item("a message without 'content'");
    const ordered_json content = content_of(item.value("content", ordered_json()), role != "assistant");
    if (role == "assistant")
      answer_of(messages, true, false)["content"] = content;
    else
      messages->push_back({{"role", role}, {"content", content}});
  } else if (type == "reasoning") {
    std::string text;
    if (item.contains("content")) text = content_text(item["content"]);
    if (text.empty() && item.contains("summary")) text = content_text(item["summary"]);
    if (text.empty()) return;  // encrypted by another server
    ordered_json& answer = answer_of(messages, false, true);
    answer["reasoning_content"] = answer.value("reasoning_content", std::string()) + text;
  } else if (type == "function_call" || type == "custom_tool_call") {
    ordered_json call;
    call["id"] = text_of_item(item, "call_id");
    call["type"] = "function";
    call["function"]["name"] = text_of_item(item, "name");
    call["function"]["arguments"] = type == "function_call" ? ordered_json(text_of_item(item, "arguments"))
                                                            : ordered_json{{"input", text_of_item(item, "input")}};
    answer_of(messages, false, false)["tool_calls"].push_back(std::move(call));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    if (!item.contains("output")) throw no_item("a result without 'output'");
    messages->push_back({{"role", "tool"},
                         {"tool_call_id", text_of_item(item, "call_id")},
                         {"content", content_of(item["output"], true)}});
  } else if (type.ends_with("_call") || type.ends_with("_call_output")) {  // of other servers' tools
    ignore(notes, "items of the type " + key_in_quotes(type) + " are ignored", "input");
  } else {
    throw no_item("items of the type " + key_in_quotes(type) + " are not supported");
  }
}

// Converts {"type": "function", "name", "parameters", ..} to the form used by chats. Tools of other types stay as they
// are: chats ignore or refuse them.
ordered_json nested_tool(const ordered_json& tool) {
  if (!tool.is_object() || tool.value("type", ordered_json()) != "function") return tool;
  ordered_json function = tool;
  function.erase("type");
  return {{"type", "function"}, {"function", std::move(function)}};
}

ordered_json chat_format(const ordered_json& text, FieldNotes* notes) {
  if (!text.is_object()) throw wrong_value("text", "'text' must be an object");
  for (const auto& [key, value] : text.items())
    if (key != "format" && !value.is_null() && !(key == "verbosity" && value == "medium"))
      ignore(notes, key_in_quotes(key) + " of 'text' has no effect here", "text");
  const auto format = text.find("format");
  if (format == text.end() || format->is_null()) return nullptr;
  if (!format->is_object() || format->value("type", ordered_json()) != "json_schema") return *format;
  ordered_json schema = *format;
  schema.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

void read_response_tools(Fields& fields, ResponsesAsk* ask) {
  ask->told["tools"] = ordered_json::array();
  ask->told["tool_choice"] = "auto";
  ask->told["parallel_tool_calls"] = true;
  if (const ordered_json* tools = fields.find("tools")) {
    if (!tools->is_array()) throw wrong_value("tools", "'tools' must be a list");
    ask->told["tools"] = *tools;
    ask->chat["tools"] = ordered_json::array();
    for (const auto& tool : *tools) ask->chat["tools"].push_back(nested_tool(tool));
  }
  if (const ordered_json* choice = fields.find("tool_choice")) {
    ask->told["tool_choice"] = *choice;
    ask->chat["tool_choice"] = choice->is_object() ? nested_tool(*choice) : *choice;
  }
  if (const ordered_json* many = fields.find("parallel_tool_calls")) {
    ask->chat["parallel_tool_calls"] = *many;
    ask->told["parallel_tool_calls"] = *many;
  }
}

void read_input(Fields& fields, const ResponseStore& store, FieldNotes* notes, ResponsesAsk* ask) {
  ask->messages = ordered_json::array();
  ask->told["previous_response_id"] = nullptr;
  if (const ordered_json* previous = fields.find("previous_response_id")) {
    if (!previous->is_string()) throw wrong_value("previous_response_id", "'previous_response_id' must be a string");
    auto before = store.find(*previous);
    if (!before)
      throw Refusal(404, "no such response is stored (any more); send its items in 'input'", "previous_response_id",
                    "previous_response_not_found");
    ask->messages = std::move(*before);
    ask->told["previous_response_id"] = *previous;
  }
  const ordered_json* input = fields.find("input");
  if (!input) throw wrong_value("input", "'input' is missing");
  if (input->is_string()) {
    ask->messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (const auto& item : *input) add_item(item, notes, &ask->messages);
  } else {
    throw no_item("'input' must be a string or a list of items");
  }
  if (ask->messages.empty()) throw no_item("'input' is empty");
  ask->chat["messages"] = ask->messages;
  ask->told["instructions"] = nullptr;
  if (const ordered_json* instructions = fields.find("instructions")) {
    if (!instructions->is_string()) throw wrong_value("instructions", "'instructions' must be a string");
    ask->told["instructions"] = *instructions;
    ordered_json& messages = ask->chat["messages"];
    messages.insert(messages.begin(), ordered_json{{"role", "system"}, {"content", *instructions}});
  }
}

}  // namespace

void ResponseStore::put(const std::string& id, const ordered_json& messages, const ordered_json& response) {
  const auto text = [](const ordered_json& value) { return value.is_null() ? std::string() : json_line(value); };
  Kept kept{id, text(messages), text(response)};
  erase(id);
  const std::lock_guard lock(mutex_);
  if (kept.bytes() > most_bytes_) return;
  bytes_ += kept.bytes();
  kept_.push_front(std::move(kept));
  by_id_[id] = kept_.begin();
  while (kept_.size() > most_ || bytes_ > most_bytes_) {
    bytes_ -= kept_.back().bytes();
    by_id_.erase(kept_.back().id);
    kept_.pop_back();
  }
}

std::optional<ordered_json> ResponseStore::read(const std::string& id, std::string Kept::* text) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_id_.find(id);
  if (at == by_id_.end() || ((*at->second).*text).empty()) return std::nullopt;
  return ordered_json::parse((*at->second).*text);
}

std::optional<ordered_json> ResponseStore::find(const std::string& id) const {
  return read(id, &Kept::messages);
}

std::optional<ordered_json> ResponseStore::response(const std::string& id) const {
  return read(id, &Kept::response);
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return false;
  bytes_ -= at->second->bytes();
  kept_.erase(at->second);
  by_id_.erase(at);
  return true;
}

ResponsesAsk read_responses(const ordered_json& body, const ResponseStore& store, FieldNotes* notes) {
  ResponsesAsk ask;
  ask.chat = ask.told = ordered_json::object();
  Fields fields(body, notes);
  read_input(fields, store, notes, &ask);
  read_response_tools(fields, &ask);
  ask.told["max_output_tokens"] = nullptr;
  if (const ordered_json* most = fields.find("max_output_tokens")) {
    ask.chat["max_tokens"] = *most;
    ask.told["max_output_tokens"] = *most;
  }
  ask.told["text"] = {{"format", {{"type", "text"}}}};
  if (const ordered_json* text = fields.find("text")) {
    const ordered_json format = chat_format(*text, notes);
    if (!format.is_null()) ask.chat["response_format"] = format;
    ask.told["text"] = *text;
  }
  ask.told["temperature"] = ask.told["top_p"] = 1;
  const auto take = [&](const char* same) {
    if (const ordered_json* value = fields.find(same)) ask.chat[same] = *value;
  };
  for (const char* same : {"model", "temperature", "top_p", "top_k", "stream", "reasoning"}) take(same);
  for (const char* same : kExtensions) take(same);
  for (const char* shown : {"temperature", "top_p"})
    if (ask.chat.contains(shown)) ask.told[shown] = ask.chat[shown];
  ask.is_stored = fields.boolean("store", true);
  ask.told["store"] = ask.is_stored;
  ask.told["truncation"] = "disabled";
  const ordered_json* metadata = fields.find("metadata");
  ask.told["metadata"] = metadata ? *metadata : ordered_json::object();
  if (const ordered_json* reasoning = fields.find("reasoning")) ask.told["reasoning"] = *reasoning;
  fields.only("truncation", {"disabled", "auto"});
  fields.only("background", {false});
  fields.only("top_logprobs", {0});
  fields.ignore({"user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "stream_options", "include"});
  fields.settle_others();
  return ask;
}

ResponsesReply::ResponsesReply(const GenerationRequest& request, const ServedModel& model, int64_t created,
                               ResponsesAsk ask, ResponseStore* store)
    : Reply(request, model, created),
      ask_(std::move(ask)),
      store_(store),
      item_id_(reply_id("msg_")),
      reasoning_id_(reply_id("rs_")) {
  rename(reply_id("resp_"));
  ask_.chat = nullptr;
}

const char* ResponsesReply::status() const {
  return std::string(finish_reason(output_at(0))) == "length" ? "incomplete" : "completed";
}

ordered_json ResponsesReply::text_item(const std::string& text, const char* status) const {
  ordered_json out;
  out["id"] = item_id_;
  out["type"] = "message";
  out["status"] = status;
  out["role"] = "assistant";
  out["content"] = ordered_json::array();
  if (std::string(status) != "in_progress")
    out["content"].push_back({{"type", "output_text"},
                              {"text", text},
                              {"annotations", ordered_json::array()},
                              {"logprobs", ordered_json::array()}});
  return out;
}

ordered_json ResponsesReply::reasoning_item(const char* status) const {
  ordered_json out;
  out["id"] = reasoning_id_;
  out["type"] = "reasoning";
  out["status"] = status;
  out["summary"] = out["content"] = ordered_json::array();
  if (std::string(status) != "in_progress")
    out["content"].push_back({{"type", "reasoning_text"}, {"text", output_at(0).reasoning}});
  return out;
}

ordered_json ResponsesReply::call_item(size_t call, const std::string& arguments, const char* status) const {
  const Call& one = output_at(0).calls.at(call);
  ordered_json out;
  out["id"] = "fc_" + one.id.substr(std::string("call_").size());
  out["type"] = "function_call";
  out["status"] = status;
  out["call_id"] = one.id;
  out["name"] = one.name;
  out["arguments"] = arguments;
  return out;
}

ordered_json ResponsesReply::output(const char* status) const {
  const Output& output = output_at(0);
  ordered_json out = ordered_json::array();
  if (!output.reasoning.empty()) out.push_back(reasoning_item(status));
  if (!output.text.empty() || output.calls.empty()) out.push_back(text_item(output.text, status));
  for (size_t i = 0; i < output.calls.size(); ++i) out.push_back(call_item(i, output.calls[i].arguments, status));
  return out;
}

ordered_json ResponsesReply::response(const char* status, bool is_over) const {
  ordered_json out;
  out["id"] = id();
  out["object"] = "response";
  out["created_at"] = created();
  out["status"] = status;
  out["error"] = out["incomplete_details"] = nullptr;
  if (std::string(status) == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["model"] = model().name;
  out["output"] = is_over ? output(status) : ordered_json::array();
  for (const auto& [key, value] : ask_.told.items()) out[key] = value;
  if (!warnings().empty()) out["warnings"] = warnings();
  out["usage"] = nullptr;
  if (is_over) put_schema_report(output_at(0), &out);
  if (is_over)
    out["usage"] = {{"input_tokens", prompt_tokens()},
                    {"input_tokens_details", {{"cached_tokens", cached_tokens()}}},
                    {"output_tokens", made_tokens()},
                    {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens()}}},
                    {"total_tokens", prompt_tokens() + made_tokens()}};
  return out;
}

// An answer truncated within a tool call cannot be continued, so its messages are not stored.
void ResponsesReply::keep() const {
  if (!ask_.is_stored) return;
  const ordered_json sent = response(status(), true);
  const Output& output = output_at(0);
  ordered_json said = {{"role", "assistant"}, {"content", output.text}};
  if (!output.reasoning.empty()) said["reasoning_content"] = output.reasoning;
  for (const Call& call : output.calls) {
    if (!ordered_json::accept(call.arguments)) return store_->put(id(), nullptr, sent);
    ordered_json one;
    one["id"] = call.id;
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    said["tool_calls"].push_back(std::move(one));
  }
  ordered_json messages = ask_.messages;
  messages.push_back(std::move(said));
  store_->put(id(), messages, sent);
}

ordered_json ResponsesReply::whole() const {
  keep();
  return response(status(), true);
}

std::string ResponsesReply::event(const std::string& type, ordered_json data) {
  ordered_json out;
  out["type"] = type;
  out["sequence_number"] = sequence_++;
  out.update(data);
  return "event: " + type + "\ndata: " + json_line(out) + "\n\n";
}

std::string ResponsesReply::first_events() {
  std::string out = event("response.created", {{"response", response("in_progress", false)}});
  return out += event("response.in_progress", {{"response", response("in_progress", false)}});
}

std::string ResponsesReply::open_item(CallPiece::Kind kind, size_t call) {
  std::string out = close_item();
  ++item_;
  is_open_ = true;
  kind_ = kind;
  call_ = call;
  const bool is_text = kind == CallPiece::Kind::text;
  const ordered_json item = is_text                              ? text_item("", "in_progress")
                            : kind == CallPiece::Kind::reasoning ? reasoning_item("in_progress")
                                                                 : call_item(call, "", "in_progress");
  out += event("response.output_item.added", {{"output_index", item_}, {"item", item}});
  if (!is_text) return out;
  ordered_json part = {{"type", "output_text"}, {"text", ""}, {"annotations", ordered_json::array()}};
  part["logprobs"] = ordered_json::array();
  return out + event("response.content_part.added",
                     {{"item_id", item_id_}, {"output_index", item_}, {"content_index", 0}, {"part", std::move(part)}});
}

std::string ResponsesReply::close_item() {
  if (!is_open_) return {};
  is_open_ = false;
  std::string out;
  ordered_json item;
  if (kind_ == CallPiece::Kind::reasoning) {
    item = reasoning_item("completed");
    out += event(
        "response.reasoning_text.done",
        {{"item_id", reasoning_id_}, {"output_index", item_}, {"content_index", 0}, {"text", output_at(0).reasoning}});
  } else if (kind_ == CallPiece::Kind::text) {
    const std::string& text = output_at(0).text;
    item = text_item(text, "completed");
    const ordered_json place = {{"item_id", item_id_}, {"output_index", item_}, {"content_index", 0}};
    ordered_json done = place, part = place;
    done["text"] = text;
    done["logprobs"] = ordered_json::array();
    part["part"] = item["content"][0];
    out += event("response.output_text.done", std::move(done));
    out += event("response.content_part.done", std::move(part));
  } else {
    const Call& call = output_at(0).calls.at(call_);
    item = call_item(call_, call.arguments, "completed");
    out +=
        event("response.function_call_arguments.done",
              {{"item_id", item["id"]}, {"output_index", item_}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return out + event("response.output_item.done", {{"output_index", item_}, {"item", item}});
}

std::string ResponsesReply::events(Delta part) {
  size_t call = output_at(0).calls.size();
  const std::vector<CallPiece> pieces = take(part);
  std::string out;
  for (const CallPiece& piece : pieces) {
    if (piece.kind == CallPiece::Kind::begin) {
      out += open_item(piece.kind, call++);
      continue;
    }
    const bool is_text = piece.kind == CallPiece::Kind::text, is_reasoning = piece.kind == CallPiece::Kind::reasoning;
    if ((is_text || is_reasoning) && !(is_open_ && kind_ == piece.kind)) out += open_item(piece.kind, 0);
    ordered_json delta;
    delta["item_id"] = is_text        ? ordered_json(item_id_)
                       : is_reasoning ? ordered_json(reasoning_id_)
                                      : call_item(call_, "", "in_progress")["id"];
    delta["output_index"] = item_;
    if (is_text || is_reasoning) delta["content_index"] = 0;
    delta["delta"] = piece.text;
    if (is_text) delta["logprobs"] = ordered_json::array();
    out += event(is_text        ? "response.output_text.delta"
                 : is_reasoning ? "response.reasoning_text.delta"
                                : "response.function_call_arguments.delta",
                 std::move(delta));
  }
  return out;
}

std::string ResponsesReply::last_events() {
  std::string out;
  // An answer without text and calls has an empty message.
  if (output_at(0).text.empty() && output_at(0).calls.empty()) out += open_item(CallPiece::Kind::text, 0);
  out += close_item();
  keep();
  return out + event(std::string("response.") + status(), {{"response", response(status(), true)}});
}

std::string ResponsesReply::failed_events(const Refusal& refusal) const {
  ordered_json out;
  out["type"] = "error";
  out["sequence_number"] = sequence_;
  out["code"] = refusal.code.empty() ? ordered_json("server_error") : ordered_json(refusal.code);
  out["message"] = refusal.what();
  out["param"] = refusal.param.empty() ? ordered_json() : ordered_json(refusal.param);
  return "event: error\ndata: " + json_line(out) + "\n\n";
}

}  // namespace lumen::model::serve
