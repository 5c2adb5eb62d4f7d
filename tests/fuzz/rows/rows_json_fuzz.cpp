// Rows as JSON: a letter says what the file behind it is called (l: .json, j: .jsonl).
#include "tests/fuzz/mutators/json.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  fuzz::read_rows_of(all[0] == 'l' ? ".json" : ".jsonl", all.substr(1));
  return 0;
}

FUZZ_MUTATOR(mutators::change_json_lines, 1)
