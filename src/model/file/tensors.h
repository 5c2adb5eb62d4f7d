// The interface of all tensor files: names, shapes, element types and bytes. A tensor in a number format is ONE blob in
// memory (number/format/format.h); in a file its data section has the tensor's name and the other sections are stored
// next to it as NAME.row, NAME.tile, NAME.tensor. Readers join the sections again, so no user of this header sees them.
// Shapes are outermost first ([out, in] for a weight), as in the graph; files with the opposite order are reversed.
// Proved by tests/model/file/gguf_test.cpp and tests/model/file/safetensors_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir/type.h"
#include "number/library/library.h"

namespace lumen::model::file {

// Name, shape and element of a tensor to be written.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  graph::Element element;

  int64_t columns() const;     // the last dimension; 1 for scalars
  int64_t rows() const;        // product of the others
  int64_t blob_bytes() const;  // memory size: scalars rows*columns*size, formats blob_layout().total. Checked; Error
};

// A tensor inside a mapped file. `data` is the data section and lives as long as the file's mapping.
struct StoredTensor : TensorSpec {
  uint64_t offset = 0;  // of the data section from the start of the file
  std::span<const uint8_t> data;
  std::array<std::span<const uint8_t>, kLevels> sections{};  // [0] is data; others empty unless the format has them

  bool is_blob() const;               // true when `data` alone is the whole blob (no other sections, no tail padding)
  void copy_blob(uint8_t* to) const;  // writes blob_bytes() bytes
  std::vector<uint8_t> blob() const;
};

// A read-only file of tensors, in any file format.
class TensorFile {
 public:
  virtual ~TensorFile() = default;
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const StoredTensor* find(std::string_view name) const;                 // null when absent
  const StoredTensor& get(std::string_view name) const;                  // Error naming file and tensor

 protected:
  void index(const std::string& file);  // fills the map; Error on duplicate names

  std::vector<StoredTensor> tensors_;

 private:
  std::map<std::string, size_t, std::less<>> by_name_;
  std::string file_;
};

// Opens a GGUF or safetensors file (recognized by its first bytes), a folder with model.safetensors, or an index of
// shards.
std::unique_ptr<TensorFile> open_tensors(const std::filesystem::path& path, const FormatLibrary& formats);

}  // namespace lumen::model::file
