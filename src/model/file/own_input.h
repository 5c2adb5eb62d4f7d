// Lists of input files, and of files that outputs replace: base/file/protected.h protects the former from being
// replaced. Proved by tests/model/file/own_input_test.cpp.
#pragma once

#include <filesystem>
#include <vector>

namespace lumen::model::file {

using Paths = std::vector<std::filesystem::path>;

// The files of a model: a GGUF file and its other parts, or a folder's files except GGUF files (with model.gguf in it:
// that one); for a file of a folder (safetensors, or an index of them) that folder. `given` may be "hf:user/repo".
Paths model_files(const std::filesystem::path& given);

// The files that a training run of any command has left in a folder and its subfolders: models, adapters, checkpoints,
// records. Without users' files and pages. Empty where there is no folder.
Paths files_of_run(const std::filesystem::path& folder);

// Existing files that a model written to `out` may replace: the GGUF file; with `split` those named like its parts; of
// a folder, its files except GGUF files.
Paths replaced_by_gguf(const std::filesystem::path& out, bool split = false);
Paths replaced_by_folder(const std::filesystem::path& out);

}  // namespace lumen::model::file
