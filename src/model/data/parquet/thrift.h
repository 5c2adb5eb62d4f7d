// Thrift's compact protocol, used in Parquet's footer and page headers. Bytes are hostile: every read is checked, and
// nesting is limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::model::data::parquet {

class Thrift {
 public:
  enum class Type : uint8_t { stop, yes, no, byte, i16, i32, i64, number, text, list, set, map, record, uuid };

  explicit Thrift(std::string_view bytes) : bytes_(bytes) {}

  // A struct: read(id, type) reads a field and returns true, or returns false to skip it.
  template <typename Read>
  void fields(const Read& read) {
    enter();
    int64_t id = 0;
    for (Type type; (type = next_field(&id)) != Type::stop;)
      if (!read(id, type)) skip(type);
    --depth_;
  }

  // A list: read(type) reads one element.
  template <typename Read>
  void elements(Type type, const Read& read) {
    Type of = Type::stop;
    for (uint64_t left = begin_list(type, &of); left > 0; --left) read(of);
  }

  int64_t integer(Type type);
  bool boolean(Type type);
  std::string_view text(Type type);

  size_t position() const { return at_; }

 private:
  void enter();
  Type next_field(int64_t* id);
  uint64_t begin_list(Type type, Type* of);
  void skip(Type type);
  void skip_element(Type type);
  uint8_t byte();
  uint64_t varint();
  int64_t zigzag();
  std::string_view take(uint64_t size);

  std::string_view bytes_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lumen::model::data::parquet
