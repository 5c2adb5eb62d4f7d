#include "model/file/gguf_split.h"

#include "base/error.h"

namespace lumen::model::file {
namespace {

constexpr int64_t kMostFiles = 99'999;

std::string split_name(const std::string& prefix, int64_t number, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

// The common prefix of `count` files, if `name` is one of them.
std::optional<std::string> prefix_of(const std::string& name, int64_t count) {
  const std::string end = split_name("", 0, count);
  if (name.size() < end.size()) return std::nullopt;
  const size_t begin = name.size() - end.size();
  for (size_t i = 0; i < end.size(); ++i) {
    const char c = name[begin + i];
    const bool is_number = i >= 1 && i <= 5;  // digits of the file number
    if (is_number ? c < '0' || c > '9' : c != end[i]) return std::nullopt;
  }
  return name.substr(0, begin);
}

}  // namespace

SplitGguf::SplitGguf(const std::filesystem::path& path, const FormatLibrary& formats) {
  files_.push_back(std::make_unique<GgufFile>(path, formats));
  int64_t count = files_[0]->metadata().integer(kSplitCount, 1);
  if (count < 1 || count > kMostFiles) throw user_error("{}: {} = {}", path.string(), kSplitCount, count);
  if (count > 1) {
    const std::string name = path.filename().string();
    const std::optional<std::string> prefix = prefix_of(name, count);
    if (!prefix) {
      throw Error(Exit::user,
                  fmt::format("{}: this is one of {} files of a model, but it is not called so", path.string(), count),
                  fmt::format("their names are {} and so on", split_name("NAME", 1, count)));
    }
    files_.clear();
    for (int64_t i = 0; i < count; ++i) {
      const auto one = path.parent_path() / split_name(*prefix, i + 1, count);
      if (!std::filesystem::exists(one))
        throw user_error("{}: file {} of {} of this model is missing", one.string(), i + 1, count);
      files_.push_back(std::make_unique<GgufFile>(one, formats));
      const GgufMetadata& m = files_.back()->metadata();
      if (m.integer(kSplitNumber) != i || m.integer(kSplitCount) != count)
        throw user_error("{}: it is marked as file {} of {}", one.string(), m.integer(kSplitNumber) + 1,
                         m.integer(kSplitCount));
    }
  }
  for (const auto& file : files_) tensors_.insert(tensors_.end(), file->tensors().begin(), file->tensors().end());
  index(path.string());
  if (count > 1) {
    const int64_t claimed = metadata().integer(kSplitTensors, tensors_.size());
    // Tensors of a format with several sections are counted once per section.
    if (claimed < std::ssize(tensors_))
      throw user_error("{}: {} tensors in all, but {} has {}", path.string(), tensors_.size(), kSplitTensors, claimed);
  }
}

std::vector<std::filesystem::path> write_gguf_files(const std::filesystem::path& path, GgufMetadata metadata,
                                                    const std::vector<TensorSpec>& tensors,
                                                    const std::function<std::span<const uint8_t>(size_t)>& blob,
                                                    int64_t split_bytes) {
  const std::vector<size_t> begins = parts_of(tensors, split_bytes);
  const auto count = std::ssize(begins) - 1;
  std::vector<std::filesystem::path> paths;
  std::vector<std::unique_ptr<GgufWriter>> writers;
  const std::string prefix = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = i;
    GgufMetadata own;
    own.source = metadata.source;
    if (i == 0) own = metadata;
    if (count > 1) {
      own.set(kSplitNumber, static_cast<uint16_t>(i));
      own.set(kSplitCount, static_cast<uint16_t>(count));
      own.set(kSplitTensors, static_cast<int32_t>(tensors.size()));
    }
    const auto one = count == 1 ? path : path.parent_path() / split_name(prefix, i + 1, count);
    writers.push_back(std::make_unique<GgufWriter>(
        one, std::move(own), std::vector<TensorSpec>(tensors.begin() + begins[at], tensors.begin() + begins[at + 1])));
    for (size_t t = begins[at]; t < begins[at + 1]; ++t) writers.back()->write(blob(t));
    paths.push_back(one);
  }
  // An incomplete set of files is unusable: none appears before all are written.
  for (size_t i = 0; i < writers.size(); ++i) {
    try {
      writers[i]->commit();
    } catch (const Error&) {
      std::error_code ignored;
      for (size_t done = 0; done < i; ++done) std::filesystem::remove(paths[done], ignored);
      throw;
    }
  }
  return paths;
}

}  // namespace lumen::model::file
