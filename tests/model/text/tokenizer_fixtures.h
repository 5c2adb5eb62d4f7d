// Where tests find tokenizers and the table of pre-tokenizers.
#pragma once

#include <filesystem>
#include <string>

#include "base/embedded.h"
#include "base/file/file.h"
#include "model/text/stages/pretokenizers.h"

namespace lumen::model::text {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/tokenizers" / name;
}

// Builds without the embedded table read it from the source tree.
inline const bool kTableReady = [] {
  for (const embedded::File& file : embedded::models()) {
    if (file.path == "models/pretokenizers.toml") return true;
  }
  const auto path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models/pretokenizers.toml";
  add_pretokenizers(read_file(path), path.string());
  return true;
}();

}  // namespace lumen::model::text
