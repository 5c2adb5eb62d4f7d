// Provenance of an output, recorded in it and checked by `lumen verify`: its base model, data, recipe, formats and
// compiler, each with a hash. GGUF and safetensors files hold it as metadata under lumen.*; folders also as run.json,
// which lists the hashes of their files as well. Proved by tests/model/recipe/provenance_test.cpp.
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

namespace lumen::model::recipe {

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kModelFile = "model.gguf";  // in the folder of a run
// Files of a Hugging Face folder that are listed with hashes.
inline const std::vector<std::string> kFolderFiles = {"model.safetensors", "config.json"};

// Parses 32 lower-case hex digits. Error that names `where` for other strings.
Hash hash_of(const std::string& hex, const std::string& where);

struct Provenance {
  std::string base;                            // file or folder of the base model; "": fresh weights
  std::string base_hash;                       // of its weights
  std::string teacher, teacher_hash;           // the same for the teacher model; "": none
  std::vector<data::DataFile> files;           // data, or merged adapters
  std::string tokens;                          // hash of all training tokens; "" where nothing was trained
  std::string recipe;                          // the trained recipe (describe_training)
  std::map<std::string, std::string> formats;  // hashes of format sources, by name
  std::string compiler;
};

// Formats of the model's weights.
std::map<std::string, std::string> formats_of(const arch::Model& model);

// Conversion to metadata and back. Metadata holds file names without folders: paths would disclose details of this
// machine, and make outputs of equal recipes differ. run.json holds paths, too. nullopt where there is no record; Error
// when it is malformed.
std::map<std::string, std::string> record_of(const Provenance& from);
std::optional<Provenance> provenance_of(const std::map<std::string, std::string>& record, const std::string& file);
// Reads the record of a GGUF or safetensors file, or of run.json.
std::map<std::string, std::string> read_record(const std::filesystem::path& file, const FormatLibrary& formats);

// Replaces the record in a GGUF file's metadata.
void set_record(file::GgufMetadata& metadata, const std::map<std::string, std::string>& record);

// Writes FOLDER/run.json: the record, and size and hash of the named files (paths relative to the folder; a folder
// stands for all files in it).
void write_run_file(const std::filesystem::path& folder, const Provenance& from, const std::vector<std::string>& files);

// One comparison.
struct VerifyLine {
  enum class Found { same, differs, missing } found = Found::same;
  std::string what, detail;
};
// Verifies a run's folder, a folder with run.json, an adapter's folder, a GGUF or a safetensors file. Error (user) when
// it has no record.
std::vector<VerifyLine> verify(const arch::LibraryRef& library, const std::filesystem::path& path);

}  // namespace lumen::model::recipe
