#include "model/file/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "number/facts/type_ids.h"

namespace lumen::model::file {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxTensors = 1'000'000;
constexpr const char* kBytes = "U8";

graph::Element element_of(const std::string& dtype, const FormatLibrary& formats, const std::string& where) {
  for (const ScalarIds& s : scalar_ids()) {
    if (dtype == s.safetensors) return {s.scalar, nullptr};
  }
  for (const FormatRef& f : formats.all()) {
    if (f->safetensors_type == dtype) return {Scalar::f32, f};
  }
  throw Error(Exit::user, fmt::format("{}: no known format has the dtype {}", where, dtype),
              "a definition with this safetensors name can be added with --formats DIR");
}

// The dtype of an element, or null when files have no name for it.
const char* dtype_of(const graph::Element& element) {
  if (element.format)
    return element.format->safetensors_type.empty() ? nullptr : element.format->safetensors_type.c_str();
  for (const ScalarIds& s : scalar_ids()) {
    if (s.scalar == element.scalar) return s.safetensors.data();
  }
  return nullptr;
}

uint64_t natural(const json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
    throw user_error("{}: expected a whole number, not {}", where,
                     value.dump(-1, ' ', false, json::error_handler_t::replace));
  return value.get<uint64_t>();
}

SafetensorsMetadata read_metadata(const json& value, const std::string& name) {
  if (!value.is_object()) throw user_error("{}: __metadata__ is no object", name);
  SafetensorsMetadata out;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw user_error("{}: __metadata__: '{}' is no string", name, key);
    out.emplace(key, text.get<std::string>());
  }
  return out;
}

}  // namespace

void SafetensorsFile::read(std::span<const std::byte> bytes, const FormatLibrary& formats) {
  if (bytes.size() < 8) throw user_error("{}: {} bytes are too few for a safetensors file", name_, bytes.size());
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if (header_size > kMaxHeader)
    throw user_error("{}: the header claims {} bytes; at most {} are allowed", name_, header_size, kMaxHeader);
  if (header_size > bytes.size() - 8)
    throw user_error("{}: the header claims {} bytes, more than the file has", name_, header_size);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  const json header = parse_json(text, name_ + ": header", 8);
  if (!header.is_object()) throw user_error("{}: the header is no JSON object", name_);
  if (header.size() > kMaxTensors) throw user_error("{}: {} tensors are too many", name_, header.size());
  const std::span<const std::byte> data = bytes.subspan(8 + header_size);

  if (const auto at = header.find("__metadata__"); at != header.end()) metadata_ = read_metadata(*at, name_);
  struct Range {
    uint64_t begin = 0, end = 0;
    size_t tensor = 0;
  };
  std::vector<Range> ranges;
  FormatsOfFile own_formats(formats, name_);
  tensors_.reserve(header.size());
  for (const auto& [key, info] : header.items()) {
    if (key == "__metadata__") continue;
    const std::string where = fmt::format("{}: tensor '{}'", name_, key);
    StoredTensor t;
    t.name = key;
    const json& shape = json_member(info, "shape", where);
    if (!shape.is_array() || shape.size() > 32)
      throw user_error("{}: the shape is no list of at most 32 numbers", where);
    for (const json& d : shape) t.shape.push_back(natural(d, where));
    const json& offsets = json_member(info, "data_offsets", where);
    if (!offsets.is_array() || offsets.size() != 2) throw user_error("{}: data_offsets is no pair", where);
    const Range range{natural(offsets[0], where), natural(offsets[1], where), tensors_.size()};
    if (range.end < range.begin || range.end > data.size())
      throw user_error("{}: bytes {} to {} are not inside the data ({} bytes)", where, range.begin, range.end,
                       data.size());
    const uint64_t size = range.end - range.begin;
    const std::string dtype = json_text(info, "dtype", where);
    if (const auto own = metadata_.find(format_key(key)); own != metadata_.end()) {
      if (dtype != kBytes) throw user_error("{}: dtype {} instead of {}", where, dtype, kBytes);
      const auto definition = metadata_.find(text_key(own->second));
      t.element.format = own_formats.get(own->second, definition == metadata_.end() ? "" : definition->second);
      const auto own_shape = metadata_.find(shape_key(key));
      if (own_shape == metadata_.end()) throw user_error("{}: __metadata__ lacks '{}'", where, shape_key(key));
      if (checked_elements(t.shape, where) != static_cast<int64_t>(size))
        throw user_error("{}: shape {} does not fit its {} bytes", where, print_shape(t.shape), size);
      t.shape = parse_shape(own_shape->second, where);
    } else {
      t.element = element_of(dtype, formats, where);
    }
    if (data_bytes(t.element, t.shape, where) != static_cast<int64_t>(size))
      throw user_error("{}: shape {} of {} does not fit its {} bytes", where, print_shape(t.shape), dtype, size);
    t.offset = 8 + header_size + range.begin;
    t.data = std::span(reinterpret_cast<const uint8_t*>(data.data()) + range.begin, size);
    ranges.push_back(range);
    tensors_.push_back(std::move(t));
  }
  // No gaps, no overlaps, no trailing bytes: a file cannot hide data.
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.begin, a.end, a.tensor) < std::tie(b.begin, b.end, b.tensor);
  });
  uint64_t expected = 0;
  std::vector<StoredTensor> in_order;
  in_order.reserve(tensors_.size());
  for (const Range& r : ranges) {
    if (r.begin != expected)
      throw user_error("{}: tensor '{}' begins at {} instead of {}", name_, tensors_[r.tensor].name, r.begin, expected);
    expected = r.end;
    in_order.push_back(std::move(tensors_[r.tensor]));
  }
  if (expected != data.size()) throw user_error("{}: {} bytes after the last tensor", name_, data.size() - expected);
  tensors_ = std::move(in_order);
  join_sections(tensors_, name_);
  index(name_);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, const FormatLibrary& formats)
    : file_(path), name_(path.string()) {
  read(file_.bytes(), formats);
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name, const FormatLibrary& formats)
    : name_(std::move(name)) {
  read(bytes, formats);
}

ShardedSafetensors::ShardedSafetensors(const std::filesystem::path& index_json, const FormatLibrary& formats) {
  const std::string where = index_json.string();
  const json root = parse_json(read_file(index_json, 256u << 20), where);
  const json& map = json_member(root, "weight_map", where);
  if (!map.is_object()) throw user_error("{}: weight_map is no object", where);
  std::map<std::string, std::set<std::string>> by_shard;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) throw user_error("{}: the shard of '{}' is no string", where, tensor);
    const std::string shard = file.get<std::string>();
    if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of("/\\") != std::string::npos ||
        shard.find('\0') != std::string::npos)
      throw user_error("{}: '{}' is no plain file name", where, shard);
    by_shard[shard].insert(tensor);
  }
  for (auto& [shard, wanted] : by_shard) {
    auto file = std::make_unique<SafetensorsFile>(index_json.parent_path() / shard, formats);
    for (const StoredTensor& t : file->tensors()) {
      if (wanted.erase(t.name) != 0) {
        tensors_.push_back(t);
      } else {
        warn(fmt::format("{}: tensor '{}' is not in the index and is ignored", file->name(), t.name));
      }
    }
    if (!wanted.empty()) throw user_error("{}: tensor '{}' is not in '{}'", where, *wanted.begin(), shard);
    shards_.push_back(std::move(file));
  }
  index(where);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, SafetensorsMetadata metadata,
                                     const std::vector<TensorSpec>& tensors)
    : file_(path) {
  std::erase_if(metadata, [](const auto& entry) {
    return entry.first.starts_with("lumen.tensor.") || entry.first.starts_with("lumen.format.");
  });
  std::vector<BlobStream::Blob> blobs;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const TensorSpec& t : tensors) {
    const char* dtype = dtype_of(t.element);
    if (!dtype) {
      LUMEN_CHECK(t.element.format != nullptr);
      metadata[format_key(t.name)] = t.element.format->name;
      metadata[shape_key(t.name)] = print_shape(t.shape);
      const std::string& text = t.element.format->source_text;
      if (metadata.emplace(text_key(t.element.format->name), text).first->second != text)
        throw two_definitions(t.element.format->name);
    }
    BlobStream::Blob blob{t.name, static_cast<uint64_t>(t.blob_bytes()), raw_tensors(t, dtype != nullptr)};
    for (const RawTensor& raw : blob.parts) {
      if (header.contains(raw.name)) throw user_error("two tensors are called '{}'", raw.name);
      header[raw.name] = {{"dtype", raw.bytes_only ? kBytes : dtype},
                          {"shape", raw.shape},
                          {"data_offsets", {offset, offset + raw.bytes}}};
      offset += raw.bytes;
    }
    blobs.push_back(std::move(blob));
  }
  if (metadata.empty()) {
    header.erase("__metadata__");
  } else {
    header["__metadata__"] = metadata;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw user_error("'{}': a tensor's name or a metadata string is not valid UTF-8", path.string());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  file_.write(&size, 8);
  file_.write(text);
  stream_.emplace(std::move(blobs), 1);
}

void SafetensorsWriter::write(std::span<const uint8_t> part) {
  stream_->write(file_, part);
}

void SafetensorsWriter::commit() {
  LUMEN_CHECK(stream_->complete(), "a safetensors file was closed before all its tensors were written");
  file_.commit();
}

void write_safetensors_files(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors,
                             const std::function<std::span<const uint8_t>(size_t)>& blob, int64_t part_bytes) {
  const std::vector<size_t> begins = parts_of(tensors, part_bytes);
  const size_t count = begins.size() - 1;
  json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
  int64_t total = 0;
  for (size_t part = 0; part < count; ++part) {
    const std::string name =
        count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, count);
    const std::vector<TensorSpec> own(tensors.begin() + begins[part], tensors.begin() + begins[part + 1]);
    SafetensorsWriter writer(folder / name, {{"format", "pt"}}, own);
    for (size_t t = begins[part]; t < begins[part + 1]; ++t) {
      writer.write(blob(t));
      total += tensors[t].blob_bytes();
      index["weight_map"][tensors[t].name] = name;
    }
    writer.commit();
  }
  index["metadata"]["total_size"] = total;
  if (count > 1) write_file_atomic(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace lumen::model::file
