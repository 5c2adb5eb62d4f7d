// See msgpack.h. The MessagePack specification, big-endian.
#include "tests/amd/code/msgpack.h"

#include "tests/amd/fault.h"

namespace lumen::amd {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Packed value(int depth) {
    if (depth > 16) fault("metadata: nested too deep");
    const uint64_t tag = number(1);
    if (tag < 0x80) return integer(tag);
    if (tag >= 0xe0) return integer(static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(tag))));
    if (tag < 0x90) return map(tag & 15, depth);
    if (tag < 0xa0) return list(tag & 15, depth);
    if (tag < 0xc0) return text(tag & 31);
    switch (tag) {
      case 0xc0:
        return {};
      case 0xc2:
      case 0xc3: {
        Packed p = integer(tag & 1);
        p.kind = Packed::Kind::truth;
        return p;
      }
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return integer(number(size_t{1} << (tag - 0xcc)));
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3: {
        const size_t bytes = size_t{1} << (tag - 0xd0);
        const auto shift = static_cast<int>(64 - 8 * bytes);
        return integer(static_cast<uint64_t>(static_cast<int64_t>(number(bytes) << shift) >> shift));
      }
      case 0xd9:
      case 0xda:
      case 0xdb:
        return text(number(size_t{1} << (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
        return list(number(size_t{2} << (tag - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return map(number(size_t{2} << (tag - 0xde)), depth);
      default:
        fault("metadata: a value of kind {:#x}", tag);
    }
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  uint64_t number(size_t bytes) {
    if (bytes > bytes_.size() - at_) fault("metadata: cut off");
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; ++i) n = n << 8 | bytes_[at_++];
    return n;
  }
  static Packed integer(uint64_t n) {
    Packed p;
    p.kind = Packed::Kind::integer;
    p.integer = n;
    return p;
  }
  Packed text(uint64_t bytes) {
    if (bytes > bytes_.size() - at_) fault("metadata: cut off");
    Packed p;
    p.kind = Packed::Kind::text;
    p.text.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(at_),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes));
    at_ += bytes;
    return p;
  }
  Packed list(uint64_t count, int depth) {
    if (count > bytes_.size() - at_) fault("metadata: cut off");
    Packed p;
    p.kind = Packed::Kind::list;
    for (uint64_t i = 0; i < count; ++i) p.items.push_back(value(depth + 1));
    return p;
  }
  Packed map(uint64_t count, int depth) {
    if (count > bytes_.size() - at_) fault("metadata: cut off");
    Packed p;
    p.kind = Packed::Kind::map;
    for (uint64_t i = 0; i < count; ++i) {
      Packed key = value(depth + 1);
      if (key.kind != Packed::Kind::text) fault("metadata: a key that is no text");
      p.members.emplace_back(std::move(key.text), value(depth + 1));
    }
    return p;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace

const Packed* Packed::find(const std::string& key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

uint64_t Packed::number(const std::string& key) const {
  const Packed* p = find(key);
  if (!p || p->kind != Kind::integer) fault("metadata: {} is missing or no integer", key);
  return p->integer;
}

std::string Packed::word(const std::string& key) const {
  const Packed* p = find(key);
  if (!p || p->kind != Kind::text) fault("metadata: {} is missing or no text", key);
  return p->text;
}

Packed read_msgpack(std::span<const uint8_t> bytes) {
  Reader reader(bytes);
  Packed p = reader.value(0);
  if (!reader.done()) fault("metadata: bytes behind its end");
  return p;
}

}  // namespace lumen::amd
