// Where an output comes from, recorded in it and checked again (`lumen verify`): the model it began with, the data, the
// recipe, the formats and the compiler, each by its hash. GGUF files and safetensors hold it as metadata under lumen.*;
// folders besides as run.json, which lists their files by content as well. Proved by
// tests/model/recipe/provenance_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/arch/family/family.h"
#include "model/arch/model.h"
#include "model/data/examples/dataset.h"
#include "model/file/gguf.h"

namespace lumen::model {

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kModelFile = "model.gguf";  // in the folder of a run
// What of a Hugging Face folder is listed by content.
inline const std::vector<std::string> kFolderFiles = {"model.safetensors", "config.json"};

// The hash that 32 lower-case digits spell. Error that names `where` for other strings.
Hash hash_of(const std::string& hex, const std::string& where);

struct Provenance {
  std::string base;                            // the file or folder it began with; "": fresh weights
  std::string base_hash;                       // of its weights
  std::string teacher, teacher_hash;           // the same of the model it learned from; "": none
  std::vector<DataFile> files;                 // data, or adapters that were merged
  std::string tokens;                          // hash of everything batches were made of; "" where nothing was trained
  std::string recipe;                          // what was trained (describe_training)
  std::map<std::string, std::string> formats;  // hashes of their texts, by name
  std::string compiler;
};

// Formats that weights of the model are held in.
std::map<std::string, std::string> formats_of(const Model& model);

// As metadata, and back. Files go by their names: places would tell strangers about this machine, and two runs of one
// recipe would leave different bytes. run.json has places, too. Nothing where there is none; Error when it is
// malformed.
std::map<std::string, std::string> record_of(const Provenance& from);
std::optional<Provenance> provenance_of(const std::map<std::string, std::string>& record, const std::string& file);
// The same of a file: GGUF, safetensors, or run.json.
std::map<std::string, std::string> read_record(const std::filesystem::path& file, const FormatLibrary& formats);

// Puts it into the metadata of a GGUF file in the place of what is there.
void set_record(GgufMetadata& metadata, const std::map<std::string, std::string>& record);

// Writes FOLDER/run.json: the record, and size and hash of the files named (paths relative to the folder; folders stand
// for the files in them).
void write_run_file(const std::filesystem::path& folder, const Provenance& from, const std::vector<std::string>& files);

// One thing that was compared.
struct VerifyLine {
  enum class Found { same, differs, missing } found = Found::same;
  std::string what, detail;
};
// A run's folder, a folder with run.json, an adapter's folder, a GGUF or a safetensors file. Error (user) when nothing
// is recorded there.
std::vector<VerifyLine> verify(const LibraryRef& library, const std::filesystem::path& path);

}  // namespace lumen::model
