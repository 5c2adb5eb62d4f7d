// Any bytes as a Parquet file.
#include "model/data/parquet/parquet.h"
#include "tests/fuzz/mutators/binary.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  try {
    fuzz::take_rows(
        *lumen::model::data::read_parquet(all, "fuzz.parquet", {.page = 1 << 24, .held = 1 << 26, .row = 1 << 24}));
  } catch (const lumen::Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
