#include "model/data/parquet/values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/data/parquet/packed_numbers.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::data::parquet {
namespace {

using nlohmann::ordered_json;

enum Encoding : int64_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRuns = 3,
  kDeltas = 5,
  kDeltaLengths = 6,
  kDeltaBytes = 7,
  kDictionary = 8,
  kByteStreams = 9,
};

Error too_short() {
  return user_error("a page ends too early");
}

// Bytes per value; 0 for variable length.
size_t width_of(const Leaf& leaf) {
  switch (leaf.type) {
    case Physical::int32:
    case Physical::float32:
      return 4;
    case Physical::int64:
    case Physical::float64:
      return 8;
    case Physical::int96:
      return 12;
    case Physical::fixed:
      return leaf.length;
    case Physical::boolean:
    case Physical::bytes:
      return 0;
  }
  return 0;
}

bool is_integer(Physical type) {
  return type == Physical::int32 || type == Physical::int64;
}

bool is_bytes(Physical type) {
  return type == Physical::bytes || type == Physical::fixed;
}

Value fixed_value(Physical type, std::string_view bytes) {
  Value out;
  switch (type) {
    case Physical::int32: {
      int32_t v = 0;
      std::memcpy(&v, bytes.data(), sizeof v);
      out.bits = int64_t{v};
      break;
    }
    case Physical::float32: {
      uint32_t v = 0;
      std::memcpy(&v, bytes.data(), sizeof v);
      out.bits = v;
      break;
    }
    case Physical::int64:
    case Physical::float64:
      std::memcpy(&out.bits, bytes.data(), sizeof out.bits);
      break;
    default:
      out.bytes = bytes;
  }
  return out;
}

// A length of four bytes, and that many bytes.
std::string_view prefixed(std::string_view page, size_t* at) {
  uint32_t length = 0;
  if (page.size() - *at < sizeof length) throw too_short();
  std::memcpy(&length, page.data() + *at, sizeof length);
  *at += sizeof length;
  if (length > page.size() - *at) throw too_short();
  const std::string_view out = page.substr(*at, length);
  *at += length;
  return out;
}

class PlainReader final : public ValueReader {
 public:
  PlainReader(const Leaf& leaf, std::string_view page) : type_(leaf.type), width_(width_of(leaf)), page_(page) {}
  Value next() override {
    if (type_ == Physical::bytes) return {.bytes = prefixed(page_, &at_)};
    if (type_ == Physical::boolean) {
      if (at_ / 8 >= page_.size()) throw too_short();
      const unsigned byte = static_cast<uint8_t>(page_[at_ / 8]);
      return {.bits = byte >> (at_++ % 8) & 1};
    }
    if (width_ > page_.size() - at_) throw too_short();
    at_ += width_;
    return fixed_value(type_, page_.substr(at_ - width_, width_));
  }

 private:
  Physical type_;
  size_t width_;
  std::string_view page_;
  size_t at_ = 0;  // in bytes; for booleans in bits
};

class DictionaryReader final : public ValueReader {
 public:
  DictionaryReader(const Dictionary& dictionary, std::string_view page) : dictionary_(dictionary) {
    // A page of only nulls may be empty.
    if (!page.empty()) indices_ = HybridReader(page.substr(1), static_cast<uint8_t>(page[0]));
  }
  Value next() override { return dictionary_.at(indices_.next()); }

 private:
  const Dictionary& dictionary_;
  HybridReader indices_;
};

class BooleanRunReader final : public ValueReader {
 public:
  explicit BooleanRunReader(std::string_view page) {
    size_t at = 0;
    runs_ = HybridReader(page.empty() ? page : prefixed(page, &at), 1);
  }
  Value next() override { return {.bits = runs_.next()}; }

 private:
  HybridReader runs_;
};

class DeltaIntegerReader final : public ValueReader {
 public:
  DeltaIntegerReader(const Leaf& leaf, std::string_view page) : numbers_(page), narrow_(leaf.type == Physical::int32) {}
  Value next() override {
    const int64_t v = numbers_.next();
    return {.bits = static_cast<uint64_t>(narrow_ ? int64_t{static_cast<int32_t>(v)} : v)};
  }

 private:
  DeltaReader numbers_;
  bool narrow_;
};

// DELTA_LENGTH_BYTE_ARRAY: lengths, then the bytes of all strings.
class DeltaLengthReader final : public ValueReader {
 public:
  DeltaLengthReader(const Leaf& leaf, std::string_view page) : lengths_(page), length_(leaf.length) {
    bytes_ = page.substr(lengths_.size());
  }
  Value next() override {
    const int64_t length = lengths_.next();
    if (length < 0 || static_cast<uint64_t>(length) > bytes_.size()) throw too_short();
    const std::string_view out = bytes_.substr(0, length);
    bytes_.remove_prefix(out.size());
    if (length_ != 0 && out.size() != length_) throw user_error("a value is of another length than its column");
    return {.bytes = out};
  }

 private:
  DeltaReader lengths_;
  uint32_t length_;
  std::string_view bytes_;
};

// DELTA_BYTE_ARRAY: the common prefix length with the previous text, and the rest of each.
class DeltaBytesReader final : public ValueReader {
 public:
  DeltaBytesReader(const Leaf& leaf, std::string_view page)
      : prefixes_(page), rests_(Leaf{}, page.substr(prefixes_.size())), length_(leaf.length) {}
  Value next() override {
    const int64_t kept = prefixes_.next();
    if (kept < 0 || static_cast<uint64_t>(kept) > last_.size())
      throw user_error("a string repeats more bytes than the one before has");
    last_.resize(kept);
    last_ += rests_.next().bytes;
    if (length_ != 0 && last_.size() != length_) throw user_error("a value is of another length than its column");
    return {.bytes = last_};
  }

 private:
  DeltaReader prefixes_;
  DeltaLengthReader rests_;
  uint32_t length_;
  std::string last_;
};

// BYTE_STREAM_SPLIT: the first bytes of all values, then the second ones, and so on.
class ByteStreamReader final : public ValueReader {
 public:
  ByteStreamReader(const Leaf& leaf, std::string_view page)
      : type_(leaf.type), width_(width_of(leaf)), page_(page), count_(page.size() / width_) {}
  Value next() override {
    if (at_ == count_) throw too_short();
    value_.resize(width_);
    for (size_t i = 0; i < width_; ++i) value_[i] = page_[i * count_ + at_];
    ++at_;
    return fixed_value(type_, value_);
  }

 private:
  Physical type_;
  size_t width_;
  std::string_view page_;
  size_t count_, at_ = 0;
  std::string value_;
};

// Big-endian two's complement.
double decimal_of(std::string_view bytes) {
  double out = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    out = out * 256 + (i == 0 ? static_cast<int8_t>(byte) : byte);
  }
  return out;
}

double half_of(std::string_view bytes) {
  uint16_t v = 0;
  std::memcpy(&v, bytes.data(), sizeof v);
  const int exponent = v >> 10 & 31, fraction = v & 1023;
  double out = exponent == 0    ? std::ldexp(fraction, -24)
               : exponent == 31 ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                                : std::ldexp(1024 + fraction, exponent - 25);
  return v >> 15 ? -out : out;
}

}  // namespace

Dictionary::Dictionary(const Leaf& leaf, std::string_view page, uint64_t count)
    : type_(leaf.type), page_(page), count_(count), width_(width_of(leaf)) {
  if (type_ == Physical::boolean) throw user_error("a dictionary of booleans");
  if (width_ > 0) {
    if (count > page.size() / width_) throw user_error("a dictionary is shorter than its recorded size");
    return;
  }
  if (count > page.size() / sizeof(uint32_t)) throw user_error("a dictionary is shorter than its recorded size");
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    begins_.push_back(at);
    prefixed(page, &at);
  }
}

Value Dictionary::at(uint32_t index) const {
  if (index >= count_) throw user_error("value {} of a dictionary that has {}", index, count_);
  if (width_ > 0) return fixed_value(type_, page_.substr(index * width_, width_));
  size_t at = begins_[index];
  return {.bytes = prefixed(page_, &at)};
}

std::unique_ptr<ValueReader> read_values(int64_t encoding, const Leaf& leaf, std::string_view page,
                                         const Dictionary* dictionary) {
  switch (encoding) {
    case kPlain:
      return std::make_unique<PlainReader>(leaf, page);
    case kPlainDictionary:
    case kDictionary:
      if (!dictionary) throw user_error("a page needs a dictionary that is not there");
      return std::make_unique<DictionaryReader>(*dictionary, page);
    case kRuns:
      if (leaf.type == Physical::boolean) return std::make_unique<BooleanRunReader>(page);
      break;
    case kDeltas:
      if (is_integer(leaf.type)) return std::make_unique<DeltaIntegerReader>(leaf, page);
      break;
    case kDeltaLengths:
      if (leaf.type == Physical::bytes) return std::make_unique<DeltaLengthReader>(leaf, page);
      break;
    case kDeltaBytes:
      if (is_bytes(leaf.type)) return std::make_unique<DeltaBytesReader>(leaf, page);
      break;
    case kByteStreams:
      if (width_of(leaf) > 0 && leaf.type != Physical::int96) return std::make_unique<ByteStreamReader>(leaf, page);
      break;
    default:
      break;
  }
  throw user_error("values in encoding {}, which is not supported for their type", encoding);
}

bool to_json(const Leaf& leaf, const Value& value, ordered_json* out) {
  const int64_t integer = value.bits;
  switch (leaf.type) {
    case Physical::boolean:
      *out = value.bits != 0;
      return true;
    case Physical::int32:
    case Physical::int64:
      if (leaf.meaning == Meaning::decimal)
        *out = integer / std::pow(10.0, leaf.scale);
      else if (leaf.meaning == Meaning::natural)
        *out = leaf.type == Physical::int32 ? uint64_t{static_cast<uint32_t>(value.bits)} : value.bits;
      else
        *out = integer;
      return true;
    case Physical::float32:
      *out = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits)));
      return true;
    case Physical::float64:
      *out = std::bit_cast<double>(value.bits);
      return true;
    case Physical::int96:
    case Physical::bytes:
    case Physical::fixed:
      break;
  }
  if (leaf.meaning == Meaning::decimal) {
    *out = decimal_of(value.bytes) / std::pow(10.0, leaf.scale);
    return true;
  }
  if (leaf.meaning == Meaning::half) {
    *out = half_of(value.bytes);
    return true;
  }
  const bool is_text = text::utf8_valid_run(value.bytes, 0) == value.bytes.size();
  if (leaf.meaning == Meaning::text && !is_text) return false;
  if (is_text && leaf.type != Physical::int96)
    *out = std::string(value.bytes);
  else
    *out = ordered_json::binary({value.bytes.begin(), value.bytes.end()});
  return true;
}

}  // namespace lumen::model::data::parquet
