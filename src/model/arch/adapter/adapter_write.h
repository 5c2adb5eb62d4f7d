// Writes adapters for other programs: a folder as PEFT writes it, or a GGUF file. Names and row orders of Hugging Face
// models come from the family's source, as everywhere. Both are atomic, and adapters that a file cannot express are
// refused before anything is written. Proved by tests/model/arch/adapter/adapter_write_test.cpp, and against both
// programs by tests/model/arch/adapter/adapter_reference.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model::arch {

struct AdapterFile {
  std::string base;                           // name or path of its base model
  std::map<std::string, std::string> record;  // further metadata, by key (model/recipe/record/provenance.h)
  std::string chat_template = {};             // used for training; empty: none
};

// adapter_config.json and adapter_model.safetensors. Only the model's parameters are used, not its weights.
void write_adapter_folder(const Model& model, const Adapter& adapter, const std::filesystem::path& folder,
                          const AdapterFile& about = {});
// Error (user) if it cannot be written: a weight without an HF name, or several matrices stored in one tensor.
void check_adapter_folder(const Model& model, const Adapter& adapter);

// A GGUF file of the type "adapter". It cannot hold magnitudes and full weights (check_adapter_gguf: Error).
void write_adapter_gguf(const Model& model, const Adapter& adapter, const std::filesystem::path& path,
                        const AdapterFile& about = {});
void check_adapter_gguf(const Model& model, const Adapter& adapter);

}  // namespace lumen::model::arch
