// GGUF version 3: reading (mapped, every field checked) and writing (streamed, atomic). Little-endian only.
// Tensor types are ids; they become formats through FormatLibrary::by_gguf_type, so this code is independent of
// formats. A format without an id is written as raw bytes (I8) with the keys lumen.tensor.NAME.format,
// lumen.tensor.NAME.shape and the format's own text under lumen.format.FORMAT, so that the file is self-describing. A
// hostile file gives an Error, never a crash, and never makes the reader allocate more than a small multiple of the
// file's size. Proved by
// tests/model/file/gguf_test.cpp, tests/model/file/reference.py and tests/fuzz/gguf_fuzz.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file/file.h"
#include "model/file/sections.h"
#include "model/file/tensors.h"

namespace lumen::model::file {

// Alternatives are in the order of the file's element type ids, with array's id (9) skipped.
using GgufArray =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                 std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
                 std::vector<std::string>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
// Alternatives are in the order of the file's value type ids 0..12.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                               GgufArray, uint64_t, int64_t, double>;

// Metadata: keys with typed values, in file order. Getters accept any type that holds the value without loss and throw
// an Error naming the key otherwise; those without a fallback also when the key is missing.
class GgufMetadata {
 public:
  void set(std::string key, GgufValue value);  // replaces an existing value in place
  void erase(std::string_view key);
  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }

  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  double number(std::string_view key) const;  // floats and integers
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  const std::string& text(std::string_view key) const;
  std::string text(std::string_view key, std::string fallback) const;
  std::vector<int64_t> integers(std::string_view key) const;  // an array of integers or booleans, or one integer
  std::vector<double> numbers(std::string_view key) const;    // an array of numbers, or one
  const std::vector<std::string>& texts(std::string_view key) const;  // an array of strings

  std::string source = "GGUF metadata";  // for messages

 private:
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::map<std::string, size_t, std::less<>> by_key_;
};

// "u32", "array of string"; for messages and `inspect`.
std::string gguf_type_name(const GgufValue& value);
// The value as one line, arrays shortened to `limit` elements.
std::string gguf_print(const GgufValue& value, size_t limit = 8);

// The metadata alone, without reading tensors. `name` is used in messages.
GgufMetadata read_gguf_metadata(std::span<const std::byte> bytes, std::string name);

class GgufFile : public TensorFile {
 public:
  GgufFile(const std::filesystem::path& path, const FormatLibrary& formats);
  // Reads bytes that outlive the object; `name` is used in messages.
  GgufFile(std::span<const std::byte> bytes, std::string name, const FormatLibrary& formats);

  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& name() const { return name_; }
  uint64_t alignment() const { return alignment_; }

 private:
  void read(std::span<const std::byte> bytes, const FormatLibrary& formats);

  MappedFile file_;
  std::string name_;
  GgufMetadata metadata_;
  uint64_t alignment_ = 32;
};

// Writes a GGUF file. All tensors are announced first; then their blobs are written in that order, in parts of any
// size, so that the model needs no second copy in memory. `path` appears at commit().
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, GgufMetadata metadata, const std::vector<TensorSpec>& tensors);
  // The next bytes of the blobs, in announced order; a call may not reach past the end of the current blob.
  void write(std::span<const uint8_t> part);
  void commit();  // LUMEN_CHECKs that every blob is complete

 private:
  AtomicFile file_;
  std::optional<BlobStream> stream_;
};

// True when the type of `element` has an id that other programs know.
bool gguf_has_type(const graph::Element& element);

}  // namespace lumen::model::file
