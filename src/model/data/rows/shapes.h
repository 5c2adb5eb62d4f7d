// Rows as examples: conversations, documents, and answers to compare, whatever the columns are called. Proved by
// tests/model/data/data_rows_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model {

struct Example {
  enum class Kind { text, chat, pair, label } kind = Kind::text;
  std::string text = {};
  // Chats: all messages. The loss is on answers from message `prompt` on.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json rejected = nlohmann::ordered_json::array();  // pairs: with the answer that was not chosen
  nlohmann::ordered_json more = nlohmann::ordered_json::object();     // tools, and other values for the template
  size_t prompt = 0;
  bool wanted = true;  // labels
};

const char* example_kind_name(Example::Kind kind);

// Which columns of a file stand for which: {"prompt": "Q", "completion": "A"}. Error (usage) when `text` is no list of
// NAME=COLUMN, or has names that rows do not have.
std::map<std::string, std::string> read_columns(const std::vector<std::string>& text);

// A row that is none: why, in few words that rows share, and what exactly.
struct ShapeFault {
  std::string reason, detail;
};

// Throws ShapeFault. `columns` as above.
Example example_of(const nlohmann::ordered_json& row, const std::map<std::string, std::string>& columns);

}  // namespace lumen::model
