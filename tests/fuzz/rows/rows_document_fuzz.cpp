// Documents: Markdown with settings in front, questions and answers, and sections.
#include "model/data/rows/document.h"
#include "tests/fuzz/mutators/words.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const lumen::model::data::DataRow& row : lumen::model::data::read_document(text).rows) {
    LUMEN_CHECK(row.fault.empty() != row.value.empty());
    if (!row.fault.empty()) continue;
    try {
      lumen::model::data::example_of(row.value, {});
    } catch (const lumen::model::data::ShapeFault&) {
    }
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_document, 0)
