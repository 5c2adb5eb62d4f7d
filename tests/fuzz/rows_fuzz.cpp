// Rows of data: a letter says what the bytes behind it are (jsonl, a list, csv, tsv, markdown; each row is also taken
// as an example), and a Parquet file begins with its own mark. An Error is an answer; a crash, a hang or an allocation
// out of proportion is a find.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/data/parquet/parquet.h"
#include "model/data/rows/rows.h"
#include "model/data/rows/shapes.h"

namespace {

using namespace lumen;

constexpr int kRows = 2000;  // a Parquet file of a few bytes may have millions

const char* ending_of(char letter) {
  switch (letter) {
    case 'j':
      return ".jsonl";
    case 'l':
      return ".json";
    case 'c':
      return ".csv";
    case 't':
      return ".tsv";
    case 'm':
      return ".md";
    default:
      return nullptr;
  }
}

std::unique_ptr<model::RowReader> opened(std::string_view all) {
  if (all.starts_with("PAR"))
    return model::read_parquet(all, "fuzz.parquet", {.page = 1 << 24, .held = 1 << 26, .row = 1 << 24});
  static const std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-fuzz-XXXXXX").string();
    LUMEN_CHECK(mkdtemp(name.data()));
    return std::filesystem::path(name);
  }();
  const char* ending = all.empty() ? nullptr : ending_of(all[0]);
  if (!ending) return nullptr;
  const std::filesystem::path path = folder / (std::string("rows") + ending);
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(all.data() + 1, static_cast<std::streamsize>(all.size() - 1));
  return model::open_rows(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto reader = opened({reinterpret_cast<const char*>(data), size});
    if (!reader) return 0;
    model::DataRow row;
    for (int i = 0; i < kRows && reader->next(&row); ++i) {
      model::parse_row(&row);
      if (!row.fault.empty()) continue;
      LUMEN_CHECK(row.value.is_object());
      try {
        const model::Example example = model::example_of(row.value, {});
        LUMEN_CHECK(example.kind == model::Example::Kind::text || !example.messages.empty());
      } catch (const model::ShapeFault& fault) {
        LUMEN_CHECK(!fault.reason.empty());
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
