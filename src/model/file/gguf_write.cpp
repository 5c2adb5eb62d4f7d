#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"
#include "model/file/gguf.h"
#include "model/file/gguf_types.h"
#include "number/facts/type_ids.h"

namespace lumen::model::file {
namespace {

template <typename T>
void put(AtomicFile& file, const T& x) {
  if constexpr (std::is_same_v<T, std::string>) {
    put(file, static_cast<uint64_t>(x.size()));
    file.write(x);
  } else if constexpr (std::is_same_v<T, bool>) {
    put(file, static_cast<uint8_t>(x));
  } else {
    file.write(&x, sizeof(T));
  }
}

void put(AtomicFile& file, const GgufArray& array) {
  put(file, static_cast<int32_t>(array.index() < kGgufArrayId ? array.index() : array.index() + 1));
  std::visit(
      [&](const auto& list) {
        using T = typename std::decay_t<decltype(list)>::value_type;
        put(file, static_cast<uint64_t>(list.size()));
        for (const auto& x : list) put<T>(file, x);
      },
      array);
}

// The caller's metadata plus the keys that describe the tensors; such keys of an earlier file are dropped.
GgufMetadata complete(GgufMetadata metadata, const std::vector<TensorSpec>& tensors) {
  std::vector<std::string> stale;
  for (const auto& [key, value] : metadata.entries()) {
    if (key.starts_with("lumen.tensor.") || key.starts_with("lumen.format.")) stale.push_back(key);
  }
  for (const std::string& key : stale) metadata.erase(key);
  for (const TensorSpec& t : tensors) {
    if (gguf_type_id(t.element)) continue;
    if (!t.element.format)
      throw user_error("tensor '{}': GGUF has no type for {}", t.name, scalar_name(t.element.scalar));
    const Format& f = *t.element.format;
    metadata.set(format_key(t.name), f.name);
    metadata.set(shape_key(t.name), print_shape(t.shape));
    if (metadata.text(text_key(f.name), f.source_text) != f.source_text) throw two_definitions(f.name);
    metadata.set(text_key(f.name), f.source_text);
  }
  return metadata;
}

}  // namespace

std::optional<graph::Element> gguf_element(int type, const FormatLibrary& formats) {
  for (const ScalarIds& s : scalar_ids()) {
    if (s.gguf >= 0 && s.gguf == type) return graph::Element{s.scalar, nullptr};
  }
  if (FormatRef f = formats.by_gguf_type(type)) return graph::Element{Scalar::f32, std::move(f)};
  return std::nullopt;
}

std::optional<int> gguf_type_id(const graph::Element& element) {
  if (element.format) return element.format->gguf_type;
  for (const ScalarIds& s : scalar_ids()) {
    if (s.gguf >= 0 && s.scalar == element.scalar) return s.gguf;
  }
  return std::nullopt;
}

bool gguf_has_type(const graph::Element& element) {
  return gguf_type_id(element).has_value();
}

GgufWriter::GgufWriter(const std::filesystem::path& path, GgufMetadata metadata, const std::vector<TensorSpec>& tensors)
    : file_(path) {
  const GgufMetadata all = complete(std::move(metadata), tensors);
  const int64_t alignment = all.integer("general.alignment", 32);
  if (alignment <= 0 || alignment > (1 << 20) || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    throw user_error("general.alignment {} is no power of two", alignment);

  std::vector<BlobStream::Blob> blobs;
  int64_t count = 0;
  for (const TensorSpec& t : tensors) {
    BlobStream::Blob blob{t.name, static_cast<uint64_t>(t.blob_bytes()), raw_tensors(t, gguf_has_type(t.element))};
    count += blob.parts.size();
    blobs.push_back(std::move(blob));
  }

  file_.write("GGUF");
  put(file_, uint32_t{3});
  put(file_, count);
  put(file_, std::ssize(all.entries()));
  for (const auto& [key, value] : all.entries()) {
    put(file_, key);
    put(file_, static_cast<int32_t>(value.index()));
    std::visit([&](const auto& x) { put(file_, x); }, value);
  }
  uint64_t offset = 0;
  for (const BlobStream::Blob& blob : blobs) {
    for (const RawTensor& raw : blob.parts) {
      if (raw.name.size() > 63) throw user_error("tensor '{}': GGUF allows names of at most 63 bytes", raw.name);
      if (raw.shape.size() > 4) throw user_error("tensor '{}': GGUF allows at most 4 dimensions", raw.name);
      put(file_, raw.name);
      put(file_, static_cast<uint32_t>(raw.shape.size()));
      for (size_t d = raw.shape.size(); d-- > 0;) put(file_, raw.shape[d]);
      put(file_, static_cast<int32_t>(raw.bytes_only ? kGgufBytesId : *gguf_type_id(raw.element)));
      put(file_, offset);
      offset += round_up(raw.bytes, alignment);
    }
  }
  file_.pad_to(alignment);
  stream_.emplace(std::move(blobs), static_cast<uint64_t>(alignment));
}

void GgufWriter::write(std::span<const uint8_t> part) {
  stream_->write(file_, part);
}

void GgufWriter::commit() {
  LUMEN_CHECK(stream_->complete(), "a GGUF file was closed before all its tensors were written");
  file_.commit();
}

}  // namespace lumen::model::file
