// Models from files: GGUF, or a Hugging Face folder (config.json + safetensors + tokenizer.json). Names, config keys
// and row orders come from the family's text. Shapes are checked against the config; a missing or unexpected tensor is
// an Error that names it. Proved by tests/model/arch/arch_test.cpp and
// tests/cli/convert/stream_check.py.
#pragma once

#include <filesystem>

#include "model/arch/checkpoint/write.h"
#include "model/arch/model.h"

namespace lumen::model {

// A file ending in .gguf (by content), a folder with config.json, one of our checkpoint folders, or "hf:user/repo" of
// the local cache (hub_cache.h).
Model read_model(const LibraryRef& library, const std::filesystem::path& path);
Model read_gguf(const LibraryRef& library, const std::filesystem::path& path);
Model read_hf(const LibraryRef& library, const std::filesystem::path& folder);

// The same for models that are larger than memory: a weight that is computed with otherwise than its file holds it
// (joined of several tensors, turned, packed) has its type alone, and `source` makes it when its turn comes. The others
// lie in the mapped file. Mistakes of names, types and shapes are found at once, those of bytes when a weight is made.
struct StreamedModel {
  Model model;
  WeightSource source;  // keeps the file open; for one thread
};
StreamedModel stream_model(const LibraryRef& library, const std::filesystem::path& path);

}  // namespace lumen::model
