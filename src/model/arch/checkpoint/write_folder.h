// Models as Hugging Face folders: config.json, weights in one file or in shards, the tokenizer, and the small files
// that came with the model. `output`: name of the packing scheme, or empty (write.h).
#pragma once

#include <filesystem>
#include <string>

#include "model/arch/checkpoint/write.h"

namespace lumen::model::arch {

// Error where a folder cannot represent the model.
void require_folder(const Model& model, bool packed);

void write_folder(const Model& model, const std::filesystem::path& folder, const std::string& output,
                  int64_t part_bytes, const WeightSource& source);

}  // namespace lumen::model::arch
