// The layout of a tensor's blob in a file: its raw tensors, and a stream that takes blobs in memory order and writes
// the raw tensors. Used only by the writers and readers of this folder. Proved by
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file/file.h"
#include "model/file/tensors.h"

namespace lumen::model::file {

// A tensor in a file: a range of a blob.
struct RawTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  graph::Element element;      // meaningless when `bytes_only`
  bool bytes_only = false;     // stored as bytes; the shape then counts bytes
  uint64_t blob_begin = 0;     // range of the blob
  uint64_t bytes = 0;
};

// Keys that describe a format without a type id in the file.
std::string format_key(const std::string& tensor);  // "lumen.tensor.NAME.format": the format's name
std::string shape_key(const std::string& tensor);   // "lumen.tensor.NAME.shape": "4096x4096", outermost first
std::string text_key(const std::string& format);    // "lumen.format.FORMAT": the definition's text
std::string print_shape(const std::vector<int64_t>& shape);
std::vector<int64_t> parse_shape(const std::string& text, const std::string& where);  // Error

constexpr const char* kSectionSuffix[kLevels] = {"", ".row", ".tile", ".tensor"};

// The raw tensors of one tensor, main one first. `known`: the file has a type id for the element.
std::vector<RawTensor> raw_tensors(const TensorSpec& tensor, bool known);

// The error for a file with two different formats of the same name.
Error two_definitions(const std::string& format);

// The formats that a file names: the library's own if the texts are equal, else parsed from the file's text, once.
class FormatsOfFile {
 public:
  FormatsOfFile(const FormatLibrary& known, std::string file) : known_(known), file_(std::move(file)) {}
  // `text`: the definition in the file, empty without one. Error when a user's definition of that name differs, when
  // the text claims an id of another format, and when decoding an element exceeds the work allowed for files.
  FormatRef get(const std::string& name, const std::string& text);

 private:
  FormatRef read(const std::string& name, const std::string& text) const;

  const FormatLibrary& known_;
  std::string file_;
  std::map<std::string, FormatRef> read_;
};

// Product of the dimensions, each >= 0; Error naming `where` when it exceeds 63 bits.
int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& where);
// Bytes of the data section. Error when the last dimension is not a multiple of the block, or on overflow.
int64_t data_bytes(const graph::Element& element, const std::vector<int64_t>& shape, const std::string& where);

// Finds NAME.row etc. among `tensors` for every tensor whose format has them, checks their sizes, attaches them and
// removes them from the list.
void join_sections(std::vector<StoredTensor>& tensors, const std::string& file);

// Tensor indices at which the files of a split model begin: a new one before a file would exceed `part_bytes`; 0: one
// file. The last element is the number of tensors.
std::vector<size_t> parts_of(const std::vector<TensorSpec>& tensors, int64_t part_bytes);

// Takes the blobs of the announced tensors in order, in parts of any size, and writes their raw tensors to `file`, each
// padded with zeros to a multiple of `alignment`.
class BlobStream {
 public:
  struct Blob {
    std::string name;
    uint64_t bytes = 0;
    std::vector<RawTensor> parts;
  };
  BlobStream(std::vector<Blob> blobs, uint64_t alignment) : blobs_(std::move(blobs)), alignment_(alignment) {
    skip_empty();
  }
  void write(AtomicFile& file, std::span<const uint8_t> part);
  bool complete() const { return blob_ == blobs_.size(); }

 private:
  void skip_empty();

  std::vector<Blob> blobs_;
  uint64_t alignment_;
  size_t blob_ = 0;
  uint64_t done_ = 0;  // bytes of the current blob already taken
};

}  // namespace lumen::model::file
