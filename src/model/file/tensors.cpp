#include "model/file/tensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"
#include "model/file/sections.h"

namespace lumen::model::file {

int64_t TensorSpec::columns() const {
  return shape.empty() ? 1 : shape.back();
}

int64_t TensorSpec::rows() const {
  if (shape.empty()) return 1;
  return checked_elements({shape.begin(), shape.end() - 1}, "tensor '" + name + "'");
}

int64_t TensorSpec::blob_bytes() const {
  const int64_t bytes = data_bytes(element, shape, "tensor '" + name + "'");
  return element.format ? blob_layout(*element.format, rows(), columns()).total : bytes;
}

bool StoredTensor::is_blob() const {
  for (int level = 1; level < kLevels; ++level) {
    if (!sections[level].empty()) return false;
  }
  return std::ssize(data) == blob_bytes();
}

void StoredTensor::copy_blob(uint8_t* to) const {
  if (!element.format) {
    if (!data.empty()) std::memcpy(to, data.data(), data.size());
    return;
  }
  const BlobLayout layout = blob_layout(*element.format, rows(), columns());
  std::fill_n(to, layout.total, uint8_t{0});
  for (int level = 0; level < kLevels; ++level) {
    const std::span<const uint8_t> part = level == 0 ? data : sections[level];
    if (part.empty()) continue;
    LUMEN_CHECK(layout.section[level] + std::ssize(part) <= layout.total);
    std::memcpy(to + layout.section[level], part.data(), part.size());
  }
}

std::vector<uint8_t> StoredTensor::blob() const {
  std::vector<uint8_t> out(blob_bytes());
  copy_blob(out.data());
  return out;
}

void TensorFile::index(const std::string& file) {
  file_ = file;
  by_name_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second)
      throw user_error("{}: two tensors are called '{}'", file, tensors_[i].name);
  }
}

const StoredTensor* TensorFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& TensorFile::get(std::string_view name) const {
  const StoredTensor* t = find(name);
  if (!t) throw user_error("{}: there is no tensor '{}'", file_, name);
  return *t;
}

std::unique_ptr<TensorFile> open_tensors(const std::filesystem::path& path, const FormatLibrary& formats) {
  if (std::filesystem::is_directory(path)) {
    const auto single = path / "model.safetensors", sharded = path / "model.safetensors.index.json";
    if (std::filesystem::exists(single)) return std::make_unique<SafetensorsFile>(single, formats);
    if (std::filesystem::exists(sharded)) return std::make_unique<ShardedSafetensors>(sharded, formats);
    throw Error(Exit::user, fmt::format("'{}' has neither model.safetensors nor an index of shards", path.string()),
                "weights saved as pickles are not read; convert them to safetensors first");
  }
  if (path.extension() == ".json") return std::make_unique<ShardedSafetensors>(path, formats);
  bool gguf = false;
  {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  }
  if (gguf) return std::make_unique<GgufFile>(path, formats);
  return std::make_unique<SafetensorsFile>(path, formats);
}

}  // namespace lumen::model::file
