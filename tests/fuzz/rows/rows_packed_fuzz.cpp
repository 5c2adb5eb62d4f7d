// Any bytes as gzip data, of rows and of anything else: what unpacks stays within its bounds.
#include "model/data/reader/unpack.h"
#include "tests/fuzz/mutators/binary.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  try {
    LUMEN_CHECK(lumen::model::data::gunzip(all, "fuzz.gz", 1 << 20).size() <= 1 << 20);
  } catch (const lumen::Error&) {
  }
  fuzz::read_rows_of(".jsonl.gz", all);
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
