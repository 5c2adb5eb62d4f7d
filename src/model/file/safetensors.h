// safetensors: reading (mapped, all the rules of the reference reader) and writing (streamed, atomic).
// dtype names become scalars or, through a format's `safetensors` attribute, formats. A format without a dtype is
// written as U8 with "lumen.tensor.NAME.format", "lumen.tensor.NAME.shape" and "lumen.format.FORMAT" (its text) in
// __metadata__. No alignment is assumed: data is only as aligned as the writer made it. Proved by
// tests/model/file/safetensors_test.cpp, tests/model/file/reference.py and tests/fuzz/safetensors_fuzz.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file/file.h"
#include "model/file/sections.h"
#include "model/file/tensors.h"

namespace lumen::model::file {

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile : public TensorFile {
 public:
  SafetensorsFile(const std::filesystem::path& path, const FormatLibrary& formats);
  SafetensorsFile(std::span<const std::byte> bytes, std::string name, const FormatLibrary& formats);

  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& name() const { return name_; }

 private:
  void read(std::span<const std::byte> bytes, const FormatLibrary& formats);

  MappedFile file_;
  std::string name_;
  SafetensorsMetadata metadata_;
};

// Several files as one, by a model.safetensors.index.json: a tensor must be in exactly the shard that the index names.
class ShardedSafetensors : public TensorFile {
 public:
  ShardedSafetensors(const std::filesystem::path& index_json, const FormatLibrary& formats);

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
};

// Writes one file. Blobs are written in the announced order, in parts of any size; the file appears at commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, SafetensorsMetadata metadata,
                    const std::vector<TensorSpec>& tensors);
  void write(std::span<const uint8_t> part);
  void commit();  // LUMEN_CHECKs that every blob is complete

 private:
  AtomicFile file_;
  std::optional<BlobStream> stream_;
};

// Writes tensors in their order to model.safetensors in `folder`; if part_bytes > 0 and they are larger, to
// model-00001-of-00003.safetensors and so on, with model.safetensors.index.json. blob(i) is called in order.
void write_safetensors_files(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors,
                             const std::function<std::span<const uint8_t>(size_t)>& blob, int64_t part_bytes = 0);

}  // namespace lumen::model::file
