// Documents to train on (docs/guide/finetune-data.md): Markdown with front matter between lines of ---, headings "Q"
// and "A" for questions and answers, and all other content as text. Lines such as "::instruction::" and
// "::preference::" separate the sections of a .dlm file; headings "Prompt", "Chosen" and "Rejected" of the latter form
// pairs. Proved by tests/model/data/data_rows_test.cpp and data_form_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/data/reader/reader.h"

namespace lumen::model::data {

struct DocumentSetting {
  std::string key, value;
  uint64_t line = 0;
};

struct Document {
  std::vector<DocumentSetting> settings;
  std::vector<DataRow> rows;  // {"text": ...} and {"messages": [...]}, in the document's order
};

// Unreadable parts become rows with a fault.
Document read_document(std::string_view text);
std::vector<DataRow> document_rows(std::string_view text);

}  // namespace lumen::model::data
