// Stored bits to numbers and back, in loop IR: the codes of a field, for lanes whose places are known at synthesis
// time, and their numbers. Depends on layouts and field types only. Proved by tests/kernel/synth/synth_unpack_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/ordinal.h"
#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"
#include "number/format/format.h"

namespace lumen::synth {

// The machine's row that selects bytes of two words by the nibbles, or the bytes, of another.
constexpr const char *kPermute = "permute.u32", *kBytePermute = "bytepermute.u32";

// Bytes [base, base + bytes) of a buffer that may be read. Loads of the same bytes are shared, so create a window in
// the region of its first load, and use it only there and in nested regions.
class Window {
 public:
  Window(Builder& b, BufferId buffer, Expr base, int64_t bytes);

  // One load, at a byte of the window; shared.
  Expr load(VType type, int64_t byte, int align = 1);
  // u8 lanes: lane l is byte index[l].
  Expr bytes(const std::vector<int64_t>& index);
  // Four bytes as a word, the first lowest. `aligned`: the window begins at a multiple of four.
  Expr word(const std::array<int64_t, 4>& bytes, bool aligned, const machine::Machine& m);
  // `bits` bits (at most 64) from bit `bit` of the window as an unsigned scalar (u32, or u64 above 32 bits).
  Expr bits(int64_t bit, int bits);

  Builder& builder() { return builder_; }
  int64_t size() const { return size_; }

 private:
  Builder& builder_;
  BufferId buffer_;
  Expr base_;
  int64_t size_;
  Expr runs(const std::vector<int64_t>& index, int run);

  std::map<std::tuple<Scalar, int, int64_t>, Expr> loads_;
};

inline bool holds(const LayoutPiece& piece, int64_t element) {
  return element >= piece.first && element < piece.first + piece.count;
}
// Bytes of a record of the level.
inline int64_t record_bytes(const Format& f, Level level) {
  return std::array{f.block_bytes, f.row_bytes, f.tile_bytes, f.tensor_bytes}[ordinal(level)];
}

// Element `element` of a field in the record that starts `record` bytes into the window.
struct FieldPlace {
  int64_t record = 0;
  int64_t element = 0;
  friend bool operator==(const FieldPlace&, const FieldPlace&) = default;
};

// Bits [bit, bit + bits) of the window hold bits [value_bit, ...) of a code.
struct CodePart {
  int64_t bit = 0;
  int bits = 0, value_bit = 0;
  auto operator<=>(const CodePart&) const = default;
};
// Those of an element, its lowest bits first.
std::vector<CodePart> parts_of(const Field& field, const FieldPlace& place);
// Element `element` of consecutive blocks.
FieldPlace place_in_blocks(const Format& f, int64_t element);

constexpr uint64_t low_mask(int bits) {
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}
constexpr Scalar unsigned_of(int bits) {
  return bits == 8 ? Scalar::u8 : bits == 16 ? Scalar::u16 : bits == 32 ? Scalar::u32 : Scalar::u64;
}
inline Scalar code_type(const FieldType& t) {  // of codes in registers
  return t.bits > 32 ? Scalar::u64 : Scalar::u32;
}
// Shifted up, or down by a negative number of bits.
inline Expr shifted(Expr x, int64_t up) {
  return up > 0 ? x << up : up < 0 ? x >> -up : x;
}
// ORs the bits; `all` may have no value yet.
inline void join(Expr& all, Expr bits) {
  all = all.exists() ? all | bits : bits;
}
// Selects an entry of `level` by the bits of the index from `bit` on.
Expr choose(Expr index, std::vector<Expr> level, int64_t bit = 1);

// Raw codes, one lane per place, as u8 (fields of at most 8 bits, if `as_bytes`), u32, or u64 (fields above 32 bits).
// All places equal: a scalar of the same type; the caller splats. Rows of `m` are used for bytes where it has them.
Expr load_codes(Window& window, const Field& field, const std::vector<FieldPlace>& places, bool as_bytes = false,
                const machine::Machine* m = nullptr);

// Numbers of a field in its register type (f32, i32, u32, i64, u64); one lane per place or a scalar when all places are
// equal.
Expr load_field(Window& window, const Field& field, const std::vector<FieldPlace>& places,
                const machine::Machine* m = nullptr);

// Codes (u32, or u64 above 32 bits; any lane count) to numbers in the register type, and numbers to codes: equal to
// field_decode and field_encode bit for bit, but for the bits of a NaN. `value` is f32 for float fields, an integer of
// any width for the rest.
Expr decode_codes(Builder& b, const FieldType& type, Expr codes, const machine::Machine* m = nullptr);
Expr encode_value(Builder& b, const FieldType& type, Expr value);

// Codes of eight bits (u8) by the machine's own conversion, as f32; no value if it has none for the type or so many
// lanes.
Expr convert_codes(Builder& b, const FieldType& type, Expr codes, const machine::Machine& m);
bool converts_codes(const FieldType& type, int lanes, const machine::Machine& m);

// Numbers (f32) to codes of eight bits (u8): as encode_value, by the machine's own rounding where it has one.
Expr encode_bytes(Builder& b, const FieldType& type, Expr value, const machine::Machine& m);
// The hardware encoding of the type's codes, if the name of a row determines it.
std::optional<machine::FloatCode> spelling_of(const FieldType& type);

bool is_half(const FieldType& type);  // IEEE binary16

}  // namespace lumen::synth
