#include "model/data/parquet/thrift.h"

#include "base/error.h"

namespace lumen::model::data::parquet {
namespace {

constexpr int kDeepest = 32;

Thrift::Type type_of(unsigned code) {
  if (code > static_cast<unsigned>(Thrift::Type::uuid)) throw user_error("a field of the metadata has an unknown type");
  return static_cast<Thrift::Type>(code);
}

void require(bool condition) {
  if (!condition) throw user_error("a field of the metadata is of another type");
}

}  // namespace

uint8_t Thrift::byte() {
  if (at_ >= bytes_.size()) throw user_error("the metadata ends too early");
  return static_cast<uint8_t>(bytes_[at_++]);
}

uint64_t Thrift::varint() {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t b = byte();
    out |= static_cast<uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) return out;
  }
  throw user_error("a number of the metadata has no end");
}

int64_t Thrift::zigzag() {
  const uint64_t v = varint();
  return (v >> 1) ^ (~(v & 1) + 1);
}

std::string_view Thrift::take(uint64_t size) {
  if (size > bytes_.size() - at_) throw user_error("the metadata ends too early");
  const std::string_view out = bytes_.substr(at_, size);
  at_ += size;
  return out;
}

void Thrift::enter() {
  if (++depth_ > kDeepest) throw user_error("the metadata is nested too deep");
}

Thrift::Type Thrift::next_field(int64_t* id) {
  const uint8_t head = byte();
  const Type type = type_of(head & 15);
  if (type == Type::stop) return type;
  const int64_t last = *id;
  *id = head >> 4 ? last + (head >> 4) : zigzag();
  if (*id < INT16_MIN || *id > INT16_MAX) throw user_error("a field of the metadata has an unknown number");
  return type;
}

int64_t Thrift::integer(Type type) {
  require(type == Type::byte || type == Type::i16 || type == Type::i32 || type == Type::i64);
  return type == Type::byte ? static_cast<int8_t>(byte()) : zigzag();
}

bool Thrift::boolean(Type type) {
  require(type == Type::yes || type == Type::no);
  return type == Type::yes;
}

std::string_view Thrift::text(Type type) {
  require(type == Type::text);
  return take(varint());
}

uint64_t Thrift::begin_list(Type type, Type* of) {
  require(type == Type::list || type == Type::set);
  const uint8_t head = byte();
  *of = type_of(head & 15);
  const uint64_t count = head >> 4 == 15 ? varint() : head >> 4;
  // Every element takes at least a byte.
  if (count > bytes_.size() - at_) throw user_error("the metadata ends too early");
  return count;
}

void Thrift::skip_element(Type type) {
  if (type == Type::yes || type == Type::no)
    byte();  // in lists booleans take a byte
  else
    skip(type);
}

void Thrift::skip(Type type) {
  switch (type) {
    case Type::stop:
      throw user_error("a field of the metadata has an unknown type");
    case Type::yes:
    case Type::no:
      return;
    case Type::byte:
      byte();
      return;
    case Type::i16:
    case Type::i32:
    case Type::i64:
      varint();
      return;
    case Type::number:
      take(8);
      return;
    case Type::uuid:
      take(16);
      return;
    case Type::text:
      take(varint());
      return;
    case Type::list:
    case Type::set:
      enter();
      elements(type, [&](Type of) { skip_element(of); });
      --depth_;
      return;
    case Type::map: {
      enter();
      const uint64_t count = varint();
      if (count > bytes_.size() - at_) throw user_error("the metadata ends too early");
      const uint8_t types = count > 0 ? byte() : 0;
      for (uint64_t i = 0; i < count; ++i) {
        skip_element(type_of(types >> 4));
        skip_element(type_of(types & 15));
      }
      --depth_;
      return;
    }
    case Type::record:
      fields([](int64_t, Type) { return false; });
      return;
  }
}

}  // namespace lumen::model::data::parquet
