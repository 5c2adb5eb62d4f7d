#include "model/data/parquet/column.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "model/data/parquet/thrift.h"

namespace lumen::model::data::parquet {
namespace {

using Type = Thrift::Type;

constexpr int64_t kDataPage = 0, kIndexPage = 1, kDictionaryPage = 2, kDataPage2 = 3;
constexpr int64_t kLevelRuns = 3, kLevelBits = 4;
constexpr size_t kLongestHead = size_t{16} << 20;  // statistics contain values

}  // namespace

struct ColumnReader::PageHead {
  int64_t kind = -1, unpacked = -1, packed = -1;
  std::optional<int64_t> check;
  // The kind of the page.
  bool has_part = false;
  int64_t values = -1, encoding = -1;
  int64_t definition_encoding = kLevelRuns, repetition_encoding = kLevelRuns;
  int64_t definition_bytes = 0, repetition_bytes = 0;
  bool is_packed = true;
};

void Held::change(uint64_t before, uint64_t after) {
  bytes = bytes - before + after;
  if (bytes > limit) throw user_error("pages of more than {} MiB that lie side by side", limit >> 20);
}

int ColumnReader::Levels::next() {
  if (highest == 0) return 0;
  const uint32_t level = by_bits ? bits.next() : runs.next();
  if (level > static_cast<uint32_t>(highest)) throw user_error("level {} where {} is the highest", level, highest);
  return level;
}

void ColumnReader::begin(const Chunk& chunk) {
  check_codec(chunk.codec);
  codec_ = chunk.codec;
  rest_ = file_.substr(chunk.first, chunk.size);
  values_left_ = chunk.values;
  page_left_ = 0;
  values_.reset();
  if (dictionary_) held_.change(dictionary_->held(), 0);
  dictionary_.reset();
  pass();
}

void ColumnReader::pass() {
  while (page_left_ == 0) {
    if (values_left_ == 0) {
      repetition_ = 0;
      definition_ = -1;
      return;
    }
    load_page();
  }
  --page_left_;
  repetition_ = repetitions_.next();
  definition_ = definitions_.next();
}

ColumnReader::PageHead ColumnReader::read_head() {
  PageHead out;
  Thrift in(rest_.substr(0, kLongestHead));
  const auto data_page = [&](int64_t id, Type type) {
    int64_t* const parts[] = {&out.values, &out.encoding, &out.definition_encoding, &out.repetition_encoding};
    if (id < 1 || id > 4) return false;
    *parts[id - 1] = in.integer(type);
    return true;
  };
  const auto dictionary_page = [&](int64_t id, Type type) {
    if (id != 1 && id != 2) return false;
    (id == 1 ? out.values : out.encoding) = in.integer(type);
    return true;
  };
  const auto data_page_2 = [&](int64_t id, Type type) {
    if (id == 7) {
      out.is_packed = in.boolean(type);
      return true;
    }
    int64_t* part = id == 1   ? &out.values
                    : id == 4 ? &out.encoding
                    : id == 5 ? &out.definition_bytes
                    : id == 6 ? &out.repetition_bytes
                              : nullptr;
    if (part) *part = in.integer(type);
    return part != nullptr;
  };
  in.fields([&](int64_t id, Type type) {
    switch (id) {
      case 1:
        out.kind = in.integer(type);
        return true;
      case 2:
        out.unpacked = in.integer(type);
        return true;
      case 3:
        out.packed = in.integer(type);
        return true;
      case 4:
        out.check = in.integer(type);
        return true;
      default:
        break;
    }
    // The kind precedes its part.
    const int64_t part = out.kind == kDataPage ? 5 : out.kind == kDictionaryPage ? 7 : out.kind == kDataPage2 ? 8 : -1;
    if (id != part || type != Type::record) return false;
    out.has_part = true;
    if (id == 5)
      in.fields(data_page);
    else if (id == 7)
      in.fields(dictionary_page);
    else
      in.fields(data_page_2);
    return true;
  });
  rest_.remove_prefix(in.position());
  return out;
}

void ColumnReader::load_page() {
  if (rest_.empty()) throw user_error("pages lack {} values that the footer counts", values_left_);
  const PageHead head = read_head();
  if (head.packed < 0 || static_cast<uint64_t>(head.packed) > rest_.size())
    throw user_error("a page is longer than its column");
  const std::string_view packed = rest_.substr(0, head.packed);
  rest_.remove_prefix(packed.size());
  if (head.kind == kIndexPage) return;
  if (head.kind != kDataPage && head.kind != kDictionaryPage && head.kind != kDataPage2)
    throw user_error("a page of kind {}", head.kind);
  if (!head.has_part || head.values < 0) throw user_error("the head of a page lacks a part");
  if (head.unpacked < 0 || static_cast<uint64_t>(head.unpacked) > held_.page_limit)
    throw user_error("a page of {} bytes; the limit is {} MiB", head.unpacked, held_.page_limit >> 20);
  if (head.check) {
    const uLong found = crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(packed.data()), packed.size());
    if (static_cast<uint32_t>(found) != static_cast<uint32_t>(*head.check))
      throw user_error("a page is damaged: its checksum is another");
  }
  if (head.kind == kDictionaryPage) return take_dictionary(head, packed);
  const uint64_t values = head.values;
  if (values > values_left_) throw user_error("pages have more values than the footer counts");
  values_left_ -= values;
  page_left_ = values;
  values_.reset();
  if (head.kind == kDataPage)
    begin_page(head, packed);
  else
    begin_page_2(head, packed);
}

std::string_view ColumnReader::unpacked(const PageHead& head, std::string_view packed, size_t size,
                                        PageBuffer& buffer) {
  if (!head.is_packed) {
    if (packed.size() != size) throw user_error("a page differs from its recorded size");
    return packed;
  }
  // Checked before the memory is allocated.
  if (codec_ != 0) held_.change(buffer.capacity(), std::max(size, buffer.capacity()));
  return unpack_page(codec_, packed, size, buffer);
}

void ColumnReader::take_dictionary(const PageHead& head, std::string_view packed) {
  if (dictionary_) throw user_error("a second dictionary");
  if (head.encoding != 0 && head.encoding != 2) throw user_error("a dictionary in encoding {}", head.encoding);
  const std::string_view page = unpacked(head, packed, head.unpacked, dictionary_page_);
  dictionary_ = std::make_unique<Dictionary>(leaf_, page, static_cast<uint64_t>(head.values));
  held_.change(0, dictionary_->held());
}

ColumnReader::Levels ColumnReader::levels(int64_t encoding, int highest, std::string_view* page) {
  Levels out{.highest = highest, .runs = {}, .bits = {}};
  if (highest == 0) return out;
  const int width = bits_for(highest);
  uint64_t size = 0;
  if (encoding == kLevelRuns) {
    uint32_t length = 0;
    if (page->size() < sizeof length) throw user_error("a page ends too early");
    std::memcpy(&length, page->data(), sizeof length);
    page->remove_prefix(sizeof length);
    size = length;
  } else if (encoding == kLevelBits) {
    size = (page_left_ * width + 7) / 8;  // the values of a page are fewer than 2^63
    out.by_bits = true;
  } else {
    throw user_error("levels in encoding {}", encoding);
  }
  if (size > page->size()) throw user_error("a page ends too early");
  const std::string_view bytes = page->substr(0, size);
  page->remove_prefix(size);
  if (out.by_bits)
    out.bits = LevelBitsReader(bytes, width);
  else
    out.runs = HybridReader(bytes, width);
  return out;
}

void ColumnReader::begin_page(const PageHead& head, std::string_view packed) {
  std::string_view page = unpacked(head, packed, head.unpacked, page_);
  repetitions_ = levels(head.repetition_encoding, leaf_.repetition, &page);
  definitions_ = levels(head.definition_encoding, leaf_.definition, &page);
  values_ = read_values(head.encoding, leaf_, page, dictionary_.get());
}

void ColumnReader::begin_page_2(const PageHead& head, std::string_view packed) {
  const int64_t levels = head.repetition_bytes + head.definition_bytes;
  if (head.repetition_bytes < 0 || head.definition_bytes < 0 || head.repetition_bytes > head.packed ||
      head.definition_bytes > head.packed || levels > head.packed || levels > head.unpacked)
    throw user_error("a page's levels are longer than the page");
  const auto first = static_cast<size_t>(head.repetition_bytes), both = static_cast<size_t>(levels);
  const auto of = [](std::string_view bytes, int highest) {
    Levels out{.highest = highest, .runs = {}, .bits = {}};
    if (highest > 0) out.runs = HybridReader(bytes, bits_for(highest));
    return out;
  };
  repetitions_ = of(packed.substr(0, first), leaf_.repetition);
  definitions_ = of(packed.substr(first, both - first), leaf_.definition);
  const size_t size = head.unpacked - both;
  // For pages of only nulls some writers compress nothing.
  const std::string_view values = packed.substr(both);
  const std::string_view page = size == 0 ? std::string_view() : unpacked(head, values, size, page_);
  values_ = read_values(head.encoding, leaf_, page, dictionary_.get());
}

}  // namespace lumen::model::data::parquet
