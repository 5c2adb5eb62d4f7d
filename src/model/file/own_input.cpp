#include "model/file/own_input.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "model/file/hub_cache.h"

namespace lumen::model {
namespace {

namespace fs = std::filesystem;

// "m" of "m-00002-of-00003.gguf".
std::optional<std::string> prefix_of_part(const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";  // 0 stands for a digit
  if (name.size() <= kPattern.size()) return std::nullopt;
  const std::string_view end = std::string_view(name).substr(name.size() - kPattern.size());
  for (size_t i = 0; i < end.size(); ++i) {
    const bool digit = end[i] >= '0' && end[i] <= '9';
    if (kPattern[i] == '0' ? !digit : end[i] != kPattern[i]) return std::nullopt;
  }
  return name.substr(0, name.size() - kPattern.size());
}

// Regular files of a folder (also through links), sorted; none where there is no folder.
Paths files_in(const fs::path& folder) {
  Paths out;
  std::error_code failure;
  for (fs::directory_iterator i(folder.empty() ? fs::path(".") : folder, failure), end; !failure && i != end;
       i.increment(failure)) {
    std::error_code unknown;
    if (i->is_regular_file(unknown)) out.push_back(i->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Paths without_gguf(const fs::path& folder) {
  Paths out = files_in(folder);
  std::erase_if(out, [](const fs::path& p) { return p.extension() == ".gguf"; });
  return out;
}

Paths parts_called(const fs::path& folder, const std::string& prefix) {
  Paths out = files_in(folder);
  std::erase_if(out, [&](const fs::path& p) { return prefix_of_part(p.filename().string()) != prefix; });
  return out;
}

Paths with_other_parts(const fs::path& file) {
  Paths out = {file};
  if (const auto prefix = prefix_of_part(file.filename().string())) {
    for (const fs::path& part : parts_called(file.parent_path(), *prefix)) out.push_back(part);
  }
  return out;
}

}  // namespace

Paths model_files(const fs::path& given) {
  const fs::path path = resolve_path(given);
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return with_other_parts(path);
  if (fs::exists(path / "model.gguf", failure)) return with_other_parts(path / "model.gguf");
  return without_gguf(path);
}

Paths replaced_by_gguf(const fs::path& out, bool split) {
  Paths files = {out};
  const std::string prefix = out.extension() == ".gguf" ? out.stem().string() : out.filename().string();
  if (split) {
    for (const fs::path& part : parts_called(out.parent_path(), prefix)) files.push_back(part);
  }
  return files;
}

Paths replaced_by_folder(const fs::path& out) {
  return without_gguf(out);
}

void refuse_own_input(std::span<const fs::path> inputs, std::span<const fs::path> outputs, std::string_view hint) {
  for (const fs::path& output : outputs) {
    for (const fs::path& input : inputs) {
      std::error_code failure;  // one that is not there is no input
      if (!fs::equivalent(output, input, failure) || failure) continue;
      throw Error(Exit::usage,
                  output == input ? fmt::format("'{}' is read and would be written over", input.string())
                                  : fmt::format("'{}' is the file '{}', which is read and would be written over",
                                                output.string(), input.string()),
                  std::string(hint));
    }
  }
}

}  // namespace lumen::model
