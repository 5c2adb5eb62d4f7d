// Which files inputs are read from, and which files outputs replace: base/file/protected.h keeps the ones from being
// replaced by the others. Proved by tests/model/file/own_input_test.cpp.
#pragma once

#include <filesystem>
#include <vector>

namespace lumen::model {

using Paths = std::vector<std::filesystem::path>;

// The files a model is read from: a GGUF file and its other parts, or what a folder holds besides GGUF files (with
// model.gguf in it: that one); of a file of a folder (safetensors, an index of them) that folder. `given` may be
// "hf:user/repo".
Paths model_files(const std::filesystem::path& given);

// The files that a training run, of whichever command, has left in a folder and in those in it: models, adapters,
// checkpoints, records. Not what people put there, nor pages. None where there is no folder.
Paths files_of_run(const std::filesystem::path& folder);

// Files that are there and that a model written to `out` may replace: the GGUF file; with `split` those called like its
// parts; of a folder what it holds besides GGUF files.
Paths replaced_by_gguf(const std::filesystem::path& out, bool split = false);
Paths replaced_by_folder(const std::filesystem::path& out);

}  // namespace lumen::model
