#include "model/data/rows/shapes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/templates/messages.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, 18> kNames = {
    "messages", "conversations", "tools", "text",   "prompt",  "completion", "chosen", "rejected", "label",
    "system",   "instruction",   "input", "output", "history", "question",   "answer", "response", "kto_tag"};

[[noreturn]] void wrong(std::string reason, std::string detail = {}) {
  throw ShapeFault{std::move(reason), std::move(detail)};
}

class Row {
 public:
  Row(const ordered_json& row, const std::map<std::string, std::string>& columns) : row_(row), columns_(columns) {}

  // Null counts as missing. With a column mapping, unmapped columns are ignored, whatever their names.
  const ordered_json* find(const std::string& name) const {
    const auto renamed = columns_.find(name);
    if (renamed == columns_.end() && !columns_.empty() && name != "system" && name != "tools") return nullptr;
    const auto found = row_.find(renamed == columns_.end() ? name : renamed->second);
    return found == row_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  bool renames(const std::string& name) const { return columns_.contains(name); }

  std::string text(const std::string& name, bool may_be_empty = false) const {
    const ordered_json* value = find(name);
    if (!value) wrong(fmt::format("no \"{}\"", name));
    if (!value->is_string()) wrong(fmt::format("\"{}\" is not a string", name), value->type_name());
    const auto& text = value->get_ref<const std::string&>();
    if (!may_be_empty && text.find_first_not_of(" \t\r\n") == std::string::npos)
      wrong(fmt::format("\"{}\" is empty", name));
    return text;
  }

  std::string names() const {
    std::string out;
    for (const auto& [key, value] : row_.items()) {
      if (out.size() > 80) return out + ", ...";
      out += (out.empty() ? "" : ", ") + key;
    }
    return out.empty() ? "none" : out;
  }

 private:
  const ordered_json& row_;
  const std::map<std::string, std::string>& columns_;
};

// {"from": [..], "value": [..]}, as datasets' Sequence features store a list of objects: converted to that list.
// nullopt where not every member is a list.
std::optional<ordered_json> from_columns(const ordered_json& value) {
  if (!value.is_object() || value.empty()) return std::nullopt;
  for (const ordered_json& column : value)
    if (!column.is_array()) return std::nullopt;
  const size_t count = value.begin()->size();
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < count; ++i) list.push_back(ordered_json::object());
  for (const auto& [name, column] : value.items()) {
    if (column.size() != count)
      wrong("lists that belong together are of different lengths", fmt::format("\"{}\"", name));
    for (size_t i = 0; i < count; ++i)
      if (!column[i].is_null()) list[i][name] = column[i];
  }
  return list;
}

// A list, its column form, or its JSON text, as in tables.
std::optional<ordered_json> list_of(const ordered_json& value) {
  if (value.is_array()) return value;
  if (value.is_object()) return from_columns(value);
  if (!value.is_string() || !value.get_ref<const std::string&>().starts_with('[')) return std::nullopt;
  try {
    ordered_json list = parse_ordered_json(value.get_ref<const std::string&>(), "");
    if (list.is_array()) return list;
  } catch (const Error&) {
  }
  return std::nullopt;
}

ordered_json in_normal_form(const ordered_json& messages) {
  try {
    return templates::normal_messages(messages);
  } catch (const templates::MessageFault& fault) {
    wrong(fault.reason, fault.detail);
  }
}

// The role, from any of the names that data sets use for it. Other names are unchanged: templates have roles of their
// own.
std::string speaker_of(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kSpeakers[] = {{"human", "user"},
                                                                         {"user", "user"},
                                                                         {"prompter", "user"},
                                                                         {"gpt", "assistant"},
                                                                         {"assistant", "assistant"},
                                                                         {"chatgpt", "assistant"},
                                                                         {"bot", "assistant"},
                                                                         {"model", "assistant"},
                                                                         {"bing", "assistant"},
                                                                         {"bard", "assistant"},
                                                                         {"ai", "assistant"},
                                                                         {"system", "system"},
                                                                         {"observation", "tool"},
                                                                         {"tool", "tool"},
                                                                         {"tool_response", "tool"},
                                                                         {"function_response", "tool"},
                                                                         {"function_call", "function_call"},
                                                                         {"tool_call", "function_call"}};
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [from, to] : kSpeakers)
    if (lower == from) return std::string(to);
  return name;
}

ordered_json called(const std::string& text);

ordered_json checked_messages(const ordered_json& list, const std::string& name) {
  if (list.empty()) wrong(fmt::format("\"{}\" is empty", name));
  ordered_json named = ordered_json::array();
  for (const ordered_json& given : list) {
    ordered_json& message = named.emplace_back(given);
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (role == message.end() || !role->is_string()) continue;  // the normal form reports the fault
    *role = speaker_of(*role);
    if (*role != "function_call") continue;
    const auto text = message.find("content");
    if (text == message.end() || !text->is_string()) wrong("a function call is not text");
    message.update(called(*text));
  }
  return in_normal_form(named);
}

ordered_json message(const char* role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

// A tool call in ShareGPT's form: the text of {"name", "arguments"}, or of a list of these.
ordered_json called(const std::string& text) {
  ordered_json calls;
  try {
    calls = parse_ordered_json(text, "");
  } catch (const Error& error) {
    wrong("a function call is no valid JSON", error.what());
  }
  if (!calls.is_array()) calls = ordered_json::array({std::move(calls)});
  ordered_json list = ordered_json::array();
  for (ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("name")) wrong("a function call without a name");
    list.push_back({{"type", "function"}, {"function", std::move(call)}});
  }
  return {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", std::move(list)}};
}

ordered_json from_sharegpt(const ordered_json& list) {
  if (list.empty()) wrong("\"conversations\" is empty");
  if (list[0].is_object() && list[0].contains("role")) return checked_messages(list, "conversations");
  ordered_json out = ordered_json::array();
  for (const ordered_json& turn : list) {
    if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string() || !turn.contains("value") ||
        !turn["value"].is_string())
      wrong("a turn without \"from\" and \"value\"");
    const std::string from = speaker_of(turn["from"].get<std::string>());
    auto value = turn["value"].get<std::string>();
    if (from == "function_call")
      out.push_back(called(value));
    else if (from == "user" || from == "assistant" || from == "system" || from == "tool")
      out.push_back(message(from.c_str(), std::move(value)));
    else
      wrong("a turn of an unknown speaker", from);
  }
  return out;
}

void put_system(const Row& row, ordered_json& messages) {
  if (!row.has("system")) return;
  std::string text = row.text("system", true);
  if (!text.empty()) messages.insert(messages.begin(), message("system", std::move(text)));
}

ordered_json from_alpaca(const Row& row) {
  ordered_json out = ordered_json::array();
  if (row.has("history")) {
    const auto turns = list_of(*row.find("history"));
    if (!turns) wrong("\"history\" is no list");
    for (const ordered_json& turn : *turns) {
      if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
        wrong("a turn of \"history\" is no question with its answer");
      out.push_back(message("user", turn[0].get<std::string>()));
      out.push_back(message("assistant", turn[1].get<std::string>()));
    }
  }
  std::string question = row.text("instruction");
  const std::string input = row.has("input") ? row.text("input", true) : "";
  if (!input.empty()) question += "\n\n" + input;
  out.push_back(message("user", std::move(question)));
  put_system(row, out);
  return out;
}

// The messages before an answer: a list, or a user's text.
ordered_json prompt_of(const Row& row, const std::string& name) {
  const ordered_json& value = *row.find(name);
  ordered_json out;
  if (const auto list = list_of(value); list && !list->empty() && (*list)[0].is_object())
    out = checked_messages(*list, name);
  else
    out = ordered_json::array({message("user", row.text(name))});
  if (!out.empty() && out[0]["role"] != "system") put_system(row, out);
  return out;
}

// An answer: messages, one message, or a text.
ordered_json answer_of(const Row& row, const std::string& name) {
  const ordered_json& value = *row.find(name);
  if (const auto list = list_of(value); list && !list->empty() && (*list)[0].is_object())
    return checked_messages(*list, name);
  if (value.is_object()) return checked_messages(ordered_json::array({value}), name);
  return ordered_json::array({message("assistant", row.text(name))});
}

void append(ordered_json& to, const ordered_json& more) {
  for (const ordered_json& one : more) to.push_back(one);
}

bool label_of(const Row& row, const std::string& name) {
  const ordered_json& value = *row.find(name);
  if (value.is_boolean()) return value.get<bool>();
  if (value == 1 || value == "1" || value == "true" || value == "True") return true;
  if (value == 0 || value == "0" || value == "false" || value == "False") return false;
  wrong(fmt::format("\"{}\" is neither true nor false", name), value.dump());
}

Example pair_of(const Row& row) {
  Example out{.kind = Example::Kind::pair};
  ordered_json chosen = answer_of(row, "chosen"), rejected = answer_of(row, "rejected");
  ordered_json prompt = ordered_json::array();
  for (const char* name : {"prompt", "question", "instruction"}) {
    if (!prompt.empty() || !row.has(name)) continue;
    prompt = std::string_view(name) == "instruction" ? from_alpaca(row) : prompt_of(row, name);
  }
  // Both lists may begin with the whole prompt.
  const auto begins_with = [](const ordered_json& list, const ordered_json& first) {
    return list.size() > first.size() && std::equal(first.begin(), first.end(), list.begin());
  };
  if (prompt.empty() || (begins_with(chosen, prompt) && begins_with(rejected, prompt))) {
    out.messages = std::move(chosen);
    out.rejected = std::move(rejected);
    while (out.prompt < std::min(out.messages.size(), out.rejected.size()) &&
           out.messages[out.prompt] == out.rejected[out.prompt])
      ++out.prompt;
    if (out.prompt == 0) wrong("a pair without a prompt");
    if (out.prompt == out.messages.size() && out.messages == out.rejected) wrong("both answers are the same");
  } else {
    if (chosen == rejected) wrong("both answers are the same");
    out.prompt = prompt.size();
    out.messages = out.rejected = std::move(prompt);
    append(out.messages, chosen);
    append(out.rejected, rejected);
  }
  return out;
}

Example answered(ordered_json prompt, const ordered_json& answer) {
  Example out{.kind = Example::Kind::chat};
  out.prompt = prompt.size();
  out.messages = std::move(prompt);
  append(out.messages, answer);
  return out;
}

Example shape_of(const Row& row) {
  if (row.has("chosen") && row.has("rejected")) return pair_of(row);
  for (const char* name : {"messages", "conversations"}) {
    if (!row.has(name)) continue;
    const auto list = list_of(*row.find(name));
    if (!list) wrong(fmt::format("\"{}\" is no list", name), row.find(name)->type_name());
    Example out{.kind = Example::Kind::chat};
    out.messages = std::string_view(name) == "messages" ? checked_messages(*list, name) : from_sharegpt(*list);
    if (out.messages[0]["role"] != "system") put_system(row, out.messages);
    if (row.has("kto_tag")) {
      out.kind = Example::Kind::label;
      out.wanted = label_of(row, "kto_tag");
      if (out.messages.back()["role"] != "assistant") wrong("the last message is no answer");
      out.prompt = out.messages.size() - 1;
    }
    return out;
  }
  if (row.has("instruction") && row.has("output")) {
    ordered_json prompt = from_alpaca(row);
    Example out = answered(std::move(prompt), ordered_json::array({message("assistant", row.text("output"))}));
    return out;
  }
  constexpr std::pair<const char*, const char*> kAnswered[] = {
      {"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}, {"instruction", "response"}};
  for (const auto& [question, answer] : kAnswered) {
    if (!row.has(question) || !row.has(answer)) continue;
    Example out = answered(prompt_of(row, question), answer_of(row, answer));
    if (std::string_view(answer) == "completion" && row.has("label")) {
      out.kind = Example::Kind::label;
      out.wanted = label_of(row, "label");
    }
    return out;
  }
  if (row.has("text")) return {.kind = Example::Kind::text, .text = row.text("text")};
  wrong("no known columns", row.names());
}

}  // namespace

const char* example_kind_name(Example::Kind kind) {
  switch (kind) {
    case Example::Kind::text:
      return "texts";
    case Example::Kind::chat:
      return "chats";
    case Example::Kind::pair:
      return "pairs";
    case Example::Kind::label:
      return "labels";
  }
  return "";
}

std::map<std::string, std::string> read_columns(const std::vector<std::string>& text) {
  std::map<std::string, std::string> out;
  for (const std::string& one : text) {
    const size_t sign = one.find('=');
    const std::string name = one.substr(0, sign);
    if (sign == std::string::npos || sign + 1 == one.size())
      throw Error(Exit::usage, fmt::format("columns: '{}' is no NAME=COLUMN", one), "prompt=Q,completion=A");
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end())
      throw Error(Exit::usage, fmt::format("columns: rows have nothing called '{}'", name),
                  fmt::format("names: {}", fmt::join(kNames, ", ")));
    if (!out.emplace(name, one.substr(sign + 1)).second) throw usage_error("columns: '{}' is named twice", name);
  }
  return out;
}

Example example_of(const ordered_json& row, const std::map<std::string, std::string>& columns) {
  const Row r(row, columns);
  for (const auto& [name, column] : columns)
    if (!r.has(name)) wrong(fmt::format("no column \"{}\"", column), r.names());
  Example out = shape_of(r);
  out.messages = in_normal_form(out.messages);
  out.rejected = in_normal_form(out.rejected);
  if (r.has("tools")) {
    const auto tools = list_of(*r.find("tools"));
    if (!tools) wrong("\"tools\" is no list");
    if (!tools->empty()) out.more["tools"] = *tools;
  }
  return out;
}

}  // namespace lumen::model::data
