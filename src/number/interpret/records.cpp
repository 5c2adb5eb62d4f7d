// Packing and unpacking of whole records. Proved by tests/number/codec_test.cpp.
#include "number/interpret/records.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace lumen::interpret {
namespace {

constexpr int kTableBits = 8;

bool is_type(const FieldType& t, int bits, int mantissa, int bias) {
  return t.is_float && t.has_sign && t.bits == bits && t.mantissa_bits == mantissa && t.bias == bias &&
         t.special == FieldType::Special::ieee;
}

uint64_t take_bits(const uint8_t* record, int32_t bit, int count) {
  uint64_t value = 0;
  int done = 0;
  while (done < count) {
    const int offset = (bit + done) & 7;
    const int part = std::min(8 - offset, count - done);
    value |= static_cast<uint64_t>((record[(bit + done) >> 3] >> offset) & ((1 << part) - 1)) << done;
    done += part;
  }
  return value;
}

void put_bits(uint8_t* record, int32_t bit, int count, uint64_t value) {
  int done = 0;
  while (done < count) {
    const int offset = (bit + done) & 7;
    const int part = std::min(8 - offset, count - done);
    record[(bit + done) >> 3] = record[(bit + done) >> 3] | ((value >> done) & ((1U << part) - 1)) << offset;
    done += part;
  }
}

}  // namespace

Cell cell_from_code(const FieldType& type, uint64_t code) {
  Cell c{};
  if (!type.is_float) {
    if (type.is_signed && (code >> (type.bits - 1)) != 0 && type.bits < 64) code |= ~uint64_t{0} << type.bits;
    c.whole = code;
  } else if (is_type(type, 32, 23, 127)) {
    c.real = std::bit_cast<float>(static_cast<uint32_t>(code));
  } else if (is_type(type, 16, 10, 15)) {
    c.real = f16_to_f32(code);
  } else {
    c.real = static_cast<float>(field_decode(type, code));
  }
  return c;
}

uint64_t code_from_cell(const FieldType& type, const Cell& cell) {
  if (type.is_float) {
    if (is_type(type, 32, 23, 127)) return std::bit_cast<uint32_t>(cell.real);
    if (is_type(type, 16, 10, 15) && std::fabs(cell.real) < 65504.0F) return f32_to_f16(cell.real);
    return field_encode(type, cell.real);
  }
  const uint64_t mask = type.bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << type.bits) - 1;
  return nearest_whole(type, cell.whole) & mask;
}

Records::Records(const Format& f, Level level, const CellPlan& plan) {
  for (size_t k = 0; k < f.fields.size(); ++k) {
    const Field& field = f.fields[k];
    if (field.level != level) continue;
    Part part{&field.type, plan.field[k], static_cast<int32_t>(field.count), {}, {}};
    for (const LayoutPiece& p : field.layout.pieces) {
      for (int64_t i = p.first; i < p.first + p.count; ++i) {
        part.pieces.push_back({static_cast<int32_t>(i), static_cast<int32_t>(p.bit_of(i)), static_cast<uint8_t>(p.bits),
                               static_cast<uint8_t>(p.value_bit)});
      }
    }
    if (field.type.is_float && field.type.bits <= kTableBits) {
      for (uint64_t code = 0; code < (uint64_t{1} << field.type.bits); ++code) {
        part.values.push_back(static_cast<float>(field_decode(field.type, code)));
      }
    }
    parts_.push_back(std::move(part));
  }
}

void Records::unpack(const uint8_t* record, Cell* cells) const {
  for (const Part& part : parts_) {
    Cell* const at = cells + part.cell;
    for (int32_t i = 0; i < part.entries; ++i) at[i].whole = 0;
    for (const Piece& p : part.pieces) {
      at[p.entry].whole |= static_cast<int64_t>(take_bits(record, p.bit, p.count) << p.value_bit);
    }
    for (int32_t i = 0; i < part.entries; ++i) {
      const uint64_t code = at[i].whole;
      if (part.values.empty()) {
        at[i] = cell_from_code(*part.type, code);
      } else {
        at[i].real = part.values[code];
      }
    }
  }
}

void Records::pack(const Cell* cells, uint8_t* record) const {
  for (const Part& part : parts_) {
    for (const Piece& p : part.pieces) {
      const uint64_t code = code_from_cell(*part.type, cells[part.cell + p.entry]);
      put_bits(record, p.bit, p.count, code >> p.value_bit);
    }
  }
}

}  // namespace lumen::interpret
