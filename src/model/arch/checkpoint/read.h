// Models from files: GGUF, or a Hugging Face folder (config.json + safetensors + tokenizer.json). Names, config keys
// and row orders come from the family's text. Shapes are checked against the config; a missing or unexpected tensor is
// an Error that names it. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <filesystem>

#include "model/arch/model.h"

namespace lumen::model {

// A file ending in .gguf (by content), a folder with config.json, one of our checkpoint folders, or "hf:user/repo" of
// the local cache (hub_cache.h).
Model read_model(const LibraryRef& library, const std::filesystem::path& path);
Model read_gguf(const LibraryRef& library, const std::filesystem::path& path);
Model read_hf(const LibraryRef& library, const std::filesystem::path& folder);

}  // namespace lumen::model
