// What rows a text holds. A file's name says what it is meant to be, its content what it is: lists of rows are called
// .jsonl, lines are called .json, and tables part their fields by semicolons. Proved by
// tests/model/data/data_form_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::model {

enum class TextForm { lines, list, table, parquet, text, document };

struct FoundForm {
  TextForm form = TextForm::text;
  char separator = ',';         // of a table
  size_t skipped = 0;           // bytes in front that name the separator alone ("sep=;")
  std::string difference = {};  // how the content differs from what the name says; empty where it does not
};

// `ending`: of the file's name, without .gz: ".jsonl", ".csv", ... one of those that rows.h names.
FoundForm form_of_rows(std::string_view text, std::string_view ending);

// Where the JSON value that begins at `at` ends, by its brackets and quotation marks alone: behind its last bracket, or
// in front of the comma or bracket that follows a value without any. npos where the text ends within it.
size_t end_of_json_value(std::string_view text, size_t at);

}  // namespace lumen::model
