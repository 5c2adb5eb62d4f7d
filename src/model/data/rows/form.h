// Detects the form of a text's rows. A file's name is a hint, its content decides: some .jsonl files are lists, some
// .json files are lines, and tables may use semicolons. Proved by tests/model/data/data_form_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::model::data {

enum class TextForm { lines, list, table, parquet, text, document };

struct FoundForm {
  TextForm form = TextForm::text;
  char separator = ',';         // of a table
  size_t skipped = 0;           // bytes at the start that only name the separator ("sep=;")
  std::string difference = {};  // how the content differs from the name; empty where it does not
};

// `ending`: the file name's extension, without .gz: ".jsonl", ".csv", ... one of those in rows.h.
FoundForm form_of_rows(std::string_view text, std::string_view ending);

// The end of the JSON value that begins at `at`, found by brackets and quotation marks only: after its last bracket, or
// before the comma or bracket that follows a scalar. npos where the text ends within it.
size_t end_of_json_value(std::string_view text, size_t at);

}  // namespace lumen::model::data
