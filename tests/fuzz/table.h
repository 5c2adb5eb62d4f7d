// Makes the table of pre-tokenizers known to builds that do not embed it.
#pragma once

#include "base/embedded.h"
#include "base/file/file.h"
#include "model/text/stages/pretokenizers.h"

inline const bool kTableReady = [] {
  for (const lumen::embedded::File& file : lumen::embedded::models()) {
    if (file.path == "models/pretokenizers.toml") return true;
  }
  const char* path = LUMEN_SOURCE_DIR "/models/pretokenizers.toml";
  lumen::model::text::add_pretokenizers(lumen::read_file(path), path);
  return true;
}();
