// GGUF models in several files: PREFIX-00001-of-00003.gguf and so on. The first carries all metadata, each has its own
// tensors. A single file is a model of one. Proved by tests/model/file/gguf_split_test.cpp.
#pragma once

#include <functional>

#include "model/file/gguf.h"

namespace lumen::model::file {

inline constexpr const char* kSplitNumber = "split.no";
inline constexpr const char* kSplitCount = "split.count";
inline constexpr const char* kSplitTensors = "split.tensors.count";

class SplitGguf : public TensorFile {
 public:
  // Any of the files opens the whole model. Error when one is missing or belongs to another model.
  SplitGguf(const std::filesystem::path& path, const FormatLibrary& formats);
  const GgufMetadata& metadata() const { return files_.front()->metadata(); }

 private:
  std::vector<std::unique_ptr<GgufFile>> files_;
};

// Writes all tensors, calling blob(i) in order. split_bytes > 0: a new file begins before one would exceed that size.
// Returns the paths written.
std::vector<std::filesystem::path> write_gguf_files(const std::filesystem::path& path, GgufMetadata metadata,
                                                    const std::vector<TensorSpec>& tensors,
                                                    const std::function<std::span<const uint8_t>(size_t)>& blob,
                                                    int64_t split_bytes = 0);

}  // namespace lumen::model::file
