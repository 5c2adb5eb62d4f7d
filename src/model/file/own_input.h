// Outputs that are inputs. Whoever writes over what it reads loses it, whatever the path looks like: the same file is
// found through links and other spellings. Proved by tests/model/file/own_input_test.cpp.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::model {

using Paths = std::vector<std::filesystem::path>;

// The files a model is read from: a GGUF file and its other parts, or what a folder holds besides GGUF files (with
// model.gguf in it: that one). `given` may be "hf:user/repo".
Paths model_files(const std::filesystem::path& given);

// Files that are there and that a model written to `out` may replace: the GGUF file; with `split` those called like its
// parts; of a folder what it holds besides GGUF files.
Paths replaced_by_gguf(const std::filesystem::path& out, bool split = false);
Paths replaced_by_folder(const std::filesystem::path& out);

// Error (usage) that names the file when one of `outputs` is one of `inputs`; `hint` says what to do.
void refuse_own_input(std::span<const std::filesystem::path> inputs, std::span<const std::filesystem::path> outputs,
                      std::string_view hint);

}  // namespace lumen::model
