// What the targets of rows share: a file's rows, each read and taken as an example.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "model/data/rows/rows.h"
#include "model/data/rows/shapes.h"

namespace fuzz {

constexpr int kRows = 2000;  // a file of a few bytes may have millions

// A folder that goes with the process.
struct Folder {
  std::filesystem::path path;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};
inline const std::filesystem::path& folder() {
  static const Folder made{[] {
    // Memory where there is some: most of the time would go into files otherwise.
    std::error_code error;
    const std::filesystem::path shared = "/dev/shm";
    std::string name = ((std::filesystem::exists(shared, error) ? shared : std::filesystem::temp_directory_path()) /
                        "lumen-fuzz-XXXXXX")
                           .string();
    LUMEN_CHECK(mkdtemp(name.data()));
    lumen::set_verbosity(lumen::Verbosity::quiet);
    return std::filesystem::path(name);
  }()};
  return made.path;
}

inline std::filesystem::path write(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

inline void take_rows(lumen::model::data::RowReader& reader) {
  using namespace lumen;
  model::data::DataRow row;
  for (int i = 0; i < kRows && reader.next(&row); ++i) {
    model::data::parse_row(&row);
    if (!row.fault.empty()) continue;
    LUMEN_CHECK(row.value.is_object());
    try {
      const model::data::Example example = model::data::example_of(row.value, {});
      LUMEN_CHECK(example.kind == model::data::Example::Kind::text || !example.messages.empty());
    } catch (const model::data::ShapeFault& fault) {
      LUMEN_CHECK(!fault.reason.empty());
    }
  }
}

// A file with this ending.
inline void read_rows_of(const char* ending, std::string_view bytes) {
  try {
    take_rows(*lumen::model::data::open_rows(write(std::string("rows") + ending, bytes)));
  } catch (const lumen::Error&) {
  }
}

}  // namespace fuzz
