// Reads models: GGUF, or a Hugging Face folder (config.json + safetensors + tokenizer.json). Names, config keys and row
// orders come from the family's source. Shapes are checked against the config; a missing or unexpected tensor is an
// Error that names it. Proved by tests/model/arch/arch_test.cpp and tests/cli/convert/stream_check.py.
#pragma once

#include <filesystem>
#include <optional>

#include "model/arch/checkpoint/write.h"
#include "model/arch/model.h"

namespace lumen::model::arch {

// A GGUF file (detected by content), a folder with config.json, one of our checkpoint folders, or "hf:user/repo" from
// the local cache (model/file/hub).
Model read_model(const LibraryRef& library, const std::filesystem::path& path);
Model read_gguf(const LibraryRef& library, const std::filesystem::path& path);
Model read_hf(const LibraryRef& library, const std::filesystem::path& folder);

// The same for models larger than memory: a weight that must be converted from the file's form (joined from several
// tensors, transposed, unpacked) has only its type, and `source` creates it on demand. The others refer to the mapped
// file. Invalid names, types and shapes are detected at once, invalid bytes when a weight is created.
struct StreamedModel {
  Model model;
  WeightSource source;  // keeps the file open; not thread-safe
};
StreamedModel stream_model(const LibraryRef& library, const std::filesystem::path& path);

// The tower that reads pictures for a model, as a model of its own, whose parameters it gives rows for: the part of a
// Hugging Face folder that the text part leaves aside, where a family describes it. Its `files` say how pictures are
// prepared. nullopt for other models.
std::optional<Model> read_tower(const LibraryRef& library, const std::filesystem::path& path);

}  // namespace lumen::model::arch
