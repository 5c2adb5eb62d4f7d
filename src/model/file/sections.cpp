#include "model/file/sections.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "lang/parser.h"
#include "number/facts/limits.h"

namespace lumen::model::file {
namespace {

int64_t checked_product(int64_t a, int64_t b, const std::string& where) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) throw user_error("{}: the shape is too large to address", where);
  return out;
}

// Shape of one section: records and bytes per record.
struct Records {
  int64_t count = 0, bytes = 0;
};

Records section_records(const Format& f, const BlobLayout& layout, int64_t rows, int level) {
  switch (static_cast<Level>(level)) {
    case Level::block:
      return {rows, layout.row_stride};
    case Level::row:
      return {rows, f.row_bytes};
    case Level::tile:
      return {f.tile_bytes == 0 ? 0 : (rows + f.tile_rows - 1) / f.tile_rows * layout.tile_columns, f.tile_bytes};
    case Level::tensor:
      return {1, f.tensor_bytes};
  }
  LUMEN_UNREACHABLE();
}

FormatRef format_of_text(const std::string& text, const std::string& name, const std::string& where) {
  FormatLibrary own;
  own.add(lang::parse_file(std::make_shared<Source>(Source{where + ", format " + name, text})));
  return own.find(name);
}

// The definition without the parts that only writing needs: equal texts decode equally.
std::string decoding_text(const std::string& text, const std::string& name, const std::string& where) {
  lang::File file = lang::parse_file(std::make_shared<Source>(Source{where + ", format " + name, text}));
  const auto is_doc = [](const lang::Attribute& a) { return a.name == "doc"; };
  for (lang::FormatDecl& d : file.formats) {
    std::erase_if(d.attributes, is_doc);
    std::erase_if(d.routines, [](const lang::Function& r) { return r.name != "decode"; });
  }
  for (lang::FormatAlias& a : file.aliases) std::erase_if(a.attributes, is_doc);
  return format_of_text(lang::print_file(file), name, where)->source_text;
}

}  // namespace

Error two_definitions(const std::string& format) {
  return Error(Exit::user, fmt::format("two different formats are called '{}', and one file cannot hold both", format),
               "convert the model's weights to one of them first");
}

std::string format_key(const std::string& tensor) {
  return "lumen.tensor." + tensor + ".format";
}
std::string shape_key(const std::string& tensor) {
  return "lumen.tensor." + tensor + ".shape";
}
std::string text_key(const std::string& format) {
  return "lumen.format." + format;
}

std::string print_shape(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

std::vector<int64_t> parse_shape(const std::string& text, const std::string& where) {
  std::vector<int64_t> shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int64_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    const bool last = next == end;
    if (error != std::errc() || n < 0 || shape.size() == 8 || (!last && (*next != 'x' || next + 1 == end)))
      throw user_error("{}: '{}' is no shape", where, text);
    shape.push_back(n);
    at = last ? end : next + 1;
  }
  return shape;
}

int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& where) {
  int64_t n = 1;
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) throw user_error("{}: negative dimension {}", where, d);
    if (d == 0) empty = true;
    n = checked_product(n, std::max<int64_t>(d, 1), where);  // 0 * huge must not hide the overflow
  }
  return empty ? 0 : n;
}

int64_t data_bytes(const graph::Element& element, const std::vector<int64_t>& shape, const std::string& where) {
  const int64_t n = checked_elements(shape, where);
  if (!element.format) return checked_product(n, scalar_bytes(element.scalar), where);
  const int64_t block = element.format->block;
  const int64_t columns = shape.empty() ? 1 : shape.back();
  if (columns % block != 0) {
    throw user_error("{}: the last dimension {} is no multiple of {}, the block of format {}", where, columns, block,
                     element.format->name);
  }
  return checked_product(n / block, element.format->block_bytes, where);
}

std::vector<RawTensor> raw_tensors(const TensorSpec& tensor, bool known) {
  const std::string where = "tensor '" + tensor.name + "'";
  RawTensor main{tensor.name, tensor.shape, tensor.element, false, 0, 0};
  main.bytes = data_bytes(tensor.element, tensor.shape, where);
  if (!tensor.element.format) return {main};
  const Format& f = *tensor.element.format;
  const int64_t rows = tensor.rows();
  const BlobLayout layout = blob_layout(f, rows, tensor.columns());
  LUMEN_CHECK(static_cast<int64_t>(main.bytes) == layout.data_bytes, "{}: {} bytes of data, the blob has {}", where,
              main.bytes, layout.data_bytes);
  if (!known) {
    main.bytes_only = true;
    main.shape = {rows, layout.row_stride};
  }
  std::vector<RawTensor> out{main};
  for (int level = 1; level < kLevels; ++level) {
    const Records r = section_records(f, layout, rows, level);
    if (r.bytes == 0) continue;
    out.push_back({tensor.name + kSectionSuffix[level],
                   {r.count, r.bytes},
                   {},
                   true,
                   static_cast<uint64_t>(layout.section[level]),
                   static_cast<uint64_t>(r.count * r.bytes)});
  }
  return out;
}

FormatRef FormatsOfFile::get(const std::string& name, const std::string& text) {
  FormatRef& format = read_[name];
  if (!format) format = read(name, text);
  return format;
}

FormatRef FormatsOfFile::read(const std::string& name, const std::string& text) const {
  const FormatRef known = known_.find(name);
  if (known && (text.empty() || known->source_text == text)) return known;
  if (text.empty()) {
    throw Error(Exit::user, fmt::format("{}: the file names the format '{}', which is unknown here", file_, name),
                "add its definition with --formats DIR");
  }
  if (text.size() > (1u << 20)) throw user_error("{}: the definition of format '{}' is too long", file_, name);
  const FormatRef own = format_of_text(text, name, file_);
  if (!own) throw user_error("{}: the source under '{}' defines no format '{}'", file_, text_key(name), name);
  if (const double work = operations_of(own->decode); work > kMostDecodeInFile)
    throw Error(
        Exit::user,
        fmt::format("{}: format '{}' takes {:.0f} operations to decode an element; a definition inside a file may "
                    "take {:.0f}",
                    file_, name, work, kMostDecodeInFile),
        "if you trust the file, put its definition into a folder and add it with --formats DIR");
  if (known) {
    if (!known_.is_embedded(name))
      throw Error(
          Exit::user,
          fmt::format("{}: the file defines format '{}' in another way than {}", file_, name, known_.place_of(name)),
          "leave that definition out to read the file by its own, or call it by another name");
    if (decoding_text(own->source_text, name, file_) == decoding_text(known->source_text, name, file_)) return known;
    warn(fmt::format("{}: its format '{}' is not the one of this name that Lumen has; the file's definition is used",
                     file_, name));
  }
  if (const auto taken = known_.taken_id(*own))
    throw Error(Exit::user, fmt::format("{}: {}", file_, *taken),
                "the file's definition contradicts the one of other programs");
  return own;
}

std::vector<size_t> parts_of(const std::vector<TensorSpec>& tensors, int64_t part_bytes) {
  constexpr size_t kMostFiles = 99'999;
  std::vector<size_t> begins = {0};
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size() && part_bytes > 0; ++i) {
    const int64_t next = tensors[i].blob_bytes();
    if (bytes > 0 && bytes + next > part_bytes) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += next;
  }
  if (begins.size() > kMostFiles)
    throw user_error("{} files would be needed; at most {} can be", begins.size(), kMostFiles);
  begins.push_back(tensors.size());
  return begins;
}

void join_sections(std::vector<StoredTensor>& tensors, const std::string& file) {
  std::map<std::string, size_t, std::less<>> at;
  for (size_t i = 0; i < tensors.size(); ++i) at.emplace(tensors[i].name, i);
  std::vector<bool> taken(tensors.size(), false);
  for (StoredTensor& t : tensors) {
    t.sections[0] = t.data;
    if (!t.element.format) continue;
    const std::string where = file + ": tensor '" + t.name + "'";
    const int64_t rows = t.rows();
    const BlobLayout layout = blob_layout(*t.element.format, rows, t.columns());
    for (int level = 1; level < kLevels; ++level) {
      const Records r = section_records(*t.element.format, layout, rows, level);
      if (r.bytes == 0) continue;
      const auto found = at.find(t.name + kSectionSuffix[level]);
      if (found == at.end())
        throw user_error("{}: its part '{}{}' is missing from the file", where, t.name, kSectionSuffix[level]);
      const std::span<const uint8_t> part = tensors[found->second].data;
      if (std::ssize(part) != checked_product(r.count, r.bytes, where)) {
        throw user_error("{}: its part '{}' has {} bytes instead of {}", where, found->first, part.size(),
                         r.count * r.bytes);
      }
      t.sections[level] = part;
      taken[found->second] = true;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (taken[i]) continue;
    if (kept != i) tensors[kept] = std::move(tensors[i]);
    ++kept;
  }
  tensors.resize(kept);
}

void BlobStream::skip_empty() {
  while (blob_ < blobs_.size() && done_ == blobs_[blob_].bytes) {
    ++blob_;
    done_ = 0;
  }
}

void BlobStream::write(AtomicFile& file, std::span<const uint8_t> part) {
  constexpr uint64_t kChunk = 1 << 20;  // AtomicFile buffers each write
  while (!part.empty()) {
    LUMEN_CHECK(blob_ < blobs_.size(), "more bytes than were announced");
    const Blob& blob = blobs_[blob_];
    const uint64_t begin = done_;
    const uint64_t end = begin + std::min<uint64_t>({part.size(), blob.bytes - begin, kChunk});
    for (const RawTensor& raw : blob.parts) {
      const uint64_t from = std::max(begin, raw.blob_begin);
      const uint64_t to = std::min(end, raw.blob_begin + raw.bytes);
      if (from >= to) continue;
      file.write(part.data() + (from - begin), to - from);
      if (to == raw.blob_begin + raw.bytes) file.pad_to(alignment_);
    }
    part = part.subspan(end - begin);
    done_ = end;
    skip_empty();
  }
}

}  // namespace lumen::model::file
