// Rows as examples: conversations, documents, and preference pairs, for any column names. Proved by
// tests/model/data/data_rows_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::data {

struct Example {
  enum class Kind { text, chat, pair, label } kind = Kind::text;
  std::string text = {};
  // Chats: all messages. The loss covers answers from message `prompt` on.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json rejected = nlohmann::ordered_json::array();  // pairs: ending in the rejected answer
  nlohmann::ordered_json more = nlohmann::ordered_json::object();     // tools, and other values for the template
  size_t prompt = 0;
  bool wanted = true;  // of labels
};

const char* example_kind_name(Example::Kind kind);

// Maps fields to a file's columns: {"prompt": "Q", "completion": "A"}. Error (usage) when `text` is not a list of
// NAME=COLUMN, or has unknown field names.
std::map<std::string, std::string> read_columns(const std::vector<std::string>& text);

// An invalid row: a short reason shared by rows, and details.
struct ShapeFault {
  std::string reason, detail;
};

// Throws ShapeFault. `columns` as above.
Example example_of(const nlohmann::ordered_json& row, const std::map<std::string, std::string>& columns);

}  // namespace lumen::model::data
