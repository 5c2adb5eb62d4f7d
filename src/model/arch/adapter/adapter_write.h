// Adapters to files that other programs read: a folder as PEFT writes it, and a GGUF file as programs that read GGUF
// take it. Names and row orders of Hugging Face models come from the family's text, as everywhere. Both are atomic, and
// what a file cannot say is refused before anything is written. Proved by
// tests/model/arch/adapter/adapter_write_test.cpp, and against both programs by
// tests/model/arch/adapter/adapter_reference.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model {

struct AdapterFile {
  std::string base;                           // name or path of the model it was made for
  std::map<std::string, std::string> record;  // further metadata, by key (train/record/provenance.h)
  std::string chat_template = {};             // by which it was trained to answer; empty: none
};

// adapter_config.json and adapter_model.safetensors. Of the model its parameters are looked at, not its weights.
void write_adapter_folder(const Model& model, const Adapter& adapter, const std::filesystem::path& folder,
                          const AdapterFile& about = {});
// Error (user) that says so when it could not be written: a weight without a name there, several matrices kept in one
// tensor.
void check_adapter_folder(const Model& model, const Adapter& adapter);

// A GGUF file of the type "adapter". Magnitudes and whole weights have no place there (check_adapter_gguf: Error).
void write_adapter_gguf(const Model& model, const Adapter& adapter, const std::filesystem::path& path,
                        const AdapterFile& about = {});
void check_adapter_gguf(const Model& model, const Adapter& adapter);

}  // namespace lumen::model
