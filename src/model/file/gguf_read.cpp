#include <bit>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"
#include "model/file/gguf.h"
#include "model/file/gguf_types.h"

namespace lumen::model::file {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in the machine's own byte order");

constexpr uint64_t kMaxString = uint64_t{1} << 30;
constexpr uint64_t kMaxArray = uint64_t{1} << 30;
constexpr size_t kMaxTensorName = 63;
constexpr uint32_t kMaxDims = 4;

// Reads consecutive fields; every read is checked against the remaining bytes.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  template <typename T>
  T take(std::string_view what) {
    T out;
    need(sizeof(T), what);
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return out;
  }

  std::string take_string(std::string_view what) {
    const uint64_t size = take<uint64_t>(what);
    if (size > kMaxString || size > left()) throw bad("{} has length {}, but {} bytes are left", what, size, left());
    std::string out(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return out;
  }

  void need(uint64_t bytes, std::string_view what) const {
    if (bytes > left()) throw bad("the file ends inside {}", what);
  }

  uint64_t left() const { return bytes_.size() - at_; }
  uint64_t at() const { return at_; }

  // An Error with the file's name and the current offset.
  template <typename... Args>
  Error bad(fmt::format_string<Args...> text, Args&&... args) const {
    return user_error("{}: at byte {}: {}", name_, at_, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
};

template <typename T>
T take_value(Cursor& in, const std::string& what) {
  if constexpr (std::is_same_v<T, std::string>) {
    return in.take_string(what);
  } else if constexpr (std::is_same_v<T, bool>) {
    const uint8_t x = in.take<uint8_t>(what);
    if (x > 1) throw in.bad("{} is a boolean with value {}", what, x);
    return x != 0;
  } else {
    return in.take<T>(what);
  }
}

template <size_t I>
bool take_array_of(Cursor& in, size_t index, uint64_t count, const std::string& what, GgufArray& out) {
  if constexpr (I < std::variant_size_v<GgufArray>) {
    if (index != I) return take_array_of<I + 1>(in, index, count, what, out);
    using List = std::variant_alternative_t<I, GgufArray>;
    using T = typename List::value_type;
    constexpr uint64_t kLeast = std::is_same_v<T, std::string> ? 8 : sizeof(T);
    if (count > kMaxArray || count > in.left() / kLeast)
      throw in.bad("{} claims {} elements, more than the file holds", what, count);
    List list;
    list.reserve(count);
    for (uint64_t i = 0; i < count; ++i) list.push_back(take_value<T>(in, what));
    out = std::move(list);
    return true;
  }
  return false;
}

GgufArray take_array(Cursor& in, const std::string& what) {
  const int32_t type = in.take<int32_t>(what);
  const uint64_t count = in.take<uint64_t>(what);
  if (type == kGgufArrayId) throw in.bad("{} is an array of arrays, which no reader accepts", what);
  GgufArray out;
  const size_t index = type < kGgufArrayId ? type : type - 1;
  if (type < 0 || !take_array_of<0>(in, index, count, what, out))
    throw in.bad("{} is an array of the unknown type {}", what, type);
  return out;
}

template <size_t I = 0>
GgufValue take_typed(Cursor& in, int32_t type, const std::string& what) {
  if constexpr (I < std::variant_size_v<GgufValue>) {
    if (type != static_cast<int32_t>(I)) return take_typed<I + 1>(in, type, what);
    using T = std::variant_alternative_t<I, GgufValue>;
    if constexpr (std::is_same_v<T, GgufArray>) {
      return GgufValue(std::in_place_index<I>, take_array(in, what));
    } else {
      return GgufValue(std::in_place_index<I>, take_value<T>(in, what));
    }
  }
  throw in.bad("{} has the unknown value type {}", what, type);
}

void read_header(Cursor& in, int64_t* tensors, int64_t* pairs) {
  char magic[4];
  in.need(24, "the header");
  for (char& c : magic) c = in.take<char>("the header");
  if (std::memcmp(magic, "GGUF", 4) != 0) throw in.bad("this is no GGUF file (it does not begin with 'GGUF')");
  const uint32_t version = in.take<uint32_t>("the version");
  if ((version & 0xffff) == 0)
    throw in.bad("version {:#x}: the file is probably big-endian, which is not read", version);
  if (version < 2 || version > 3) throw in.bad("GGUF version {} is not supported; 2 and 3 are", version);
  *tensors = in.take<int64_t>("the tensor count");
  *pairs = in.take<int64_t>("the key count");
  // The least size of a tensor (24 bytes) and of a pair (14 bytes) bounds both counts.
  if (*tensors < 0 || static_cast<uint64_t>(*tensors) > in.left() / 24)
    throw in.bad("the file claims {} tensors, more than it can hold", *tensors);
  if (*pairs < 0 || static_cast<uint64_t>(*pairs) > in.left() / 14)
    throw in.bad("the file claims {} keys, more than it can hold", *pairs);
}

// Reads header and metadata; leaves `in` at the first tensor.
GgufMetadata read_metadata(Cursor& in, const std::string& name, int64_t* tensor_count) {
  int64_t pair_count = 0;
  read_header(in, tensor_count, &pair_count);
  GgufMetadata out;
  out.source = name;
  for (int64_t i = 0; i < pair_count; ++i) {
    std::string key = in.take_string(fmt::format("key {}", i));
    if (key.empty()) throw in.bad("key {} is empty", i);
    if (out.has(key)) throw in.bad("the key '{}' occurs twice", key);
    const std::string what = "key '" + key + "'";
    const int32_t type = in.take<int32_t>(what);
    out.set(std::move(key), take_typed(in, type, what));
  }
  return out;
}

}  // namespace

GgufMetadata read_gguf_metadata(std::span<const std::byte> bytes, std::string name) {
  Cursor in(bytes, name);
  int64_t tensor_count = 0;
  return read_metadata(in, name, &tensor_count);
}

void GgufFile::read(std::span<const std::byte> bytes, const FormatLibrary& formats) {
  Cursor in(bytes, name_);
  int64_t tensor_count = 0;
  metadata_ = read_metadata(in, name_, &tensor_count);
  if (const GgufValue* value = metadata_.find("general.alignment")) {
    const uint32_t* n = std::get_if<uint32_t>(value);
    if (!n || !std::has_single_bit(*n))
      throw in.bad("general.alignment must be an u32 and a power of two, not {}", gguf_print(*value));
    alignment_ = *n;
  }

  FormatsOfFile own_formats(formats, name_);
  std::set<std::string, std::less<>> names;
  std::vector<uint64_t> sizes;
  uint64_t expected = 0;
  tensors_.reserve(tensor_count);
  for (int64_t i = 0; i < tensor_count; ++i) {
    StoredTensor t;
    t.name = in.take_string(fmt::format("the name of tensor {}", i));
    if (t.name.size() > kMaxTensorName)
      throw in.bad("the name of tensor {} has {} bytes; 63 are allowed", i, t.name.size());
    const std::string what = "tensor '" + t.name + "'";
    if (!names.insert(t.name).second) throw in.bad("{} occurs twice", what);
    const uint32_t dims = in.take<uint32_t>(what);
    if (dims > kMaxDims) throw in.bad("{} has {} dimensions; at most {} are allowed", what, dims, kMaxDims);
    t.shape.resize(dims);
    for (uint32_t d = dims; d-- > 0;) t.shape[d] = in.take<int64_t>(what);
    const int32_t type = in.take<int32_t>(what);
    t.offset = in.take<uint64_t>(what);
    const std::string where = fmt::format("{}: at byte {}: {}", name_, in.at(), what);

    const GgufValue* own = metadata_.find(format_key(t.name));
    if (own) {
      if (type != kGgufBytesId) throw user_error("{}: type {} instead of plain bytes", where, type);
      const std::string& format = metadata_.text(format_key(t.name));
      const int64_t stored = checked_elements(t.shape, where);
      t.element.format = own_formats.get(format, metadata_.text(text_key(format), ""));
      t.shape = parse_shape(metadata_.text(shape_key(t.name)), where);
      if (data_bytes(t.element, t.shape, where) != stored)
        throw user_error("{}: {} bytes do not fit shape {} in format {}", where, stored, print_shape(t.shape), format);
    } else if (const auto element = gguf_element(type, formats)) {
      t.element = *element;
    } else {
      throw Error(Exit::user, fmt::format("{}: no known format has the type id {}", where, type),
                  "a definition with this gguf id can be added with --formats DIR");
    }
    const uint64_t size = data_bytes(t.element, t.shape, where);
    if (t.offset != expected) throw user_error("{}: its data begins at {} instead of {}", where, t.offset, expected);
    // size < 2^63 and expected <= file size + alignment, so this sum cannot wrap.
    expected += round_up(size, alignment_);
    if (expected > bytes.size() + alignment_)
      throw user_error("{}: its {} bytes reach past the end of the file", where, size);
    sizes.push_back(size);
    tensors_.push_back(std::move(t));
  }

  const uint64_t data = round_up(in.at(), alignment_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& t = tensors_[i];
    const uint64_t size = sizes[i];
    t.offset += data;
    if (size != 0 && (t.offset > bytes.size() || size > bytes.size() - t.offset))
      throw user_error("{}: tensor '{}': its {} bytes at {} reach past the end of the file ({} bytes)", name_, t.name,
                       size, t.offset, bytes.size());
    t.data = size == 0 ? std::span<const uint8_t>()
                       : std::span(reinterpret_cast<const uint8_t*>(bytes.data()) + t.offset, size);
  }
  join_sections(tensors_, name_);
  index(name_);
}

GgufFile::GgufFile(const std::filesystem::path& path, const FormatLibrary& formats)
    : file_(path), name_(path.string()) {
  read(file_.bytes(), formats);
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name, const FormatLibrary& formats)
    : name_(std::move(name)) {
  read(bytes, formats);
}

}  // namespace lumen::model::file
