// Records of a level: bits to cells and back, for all fields of the level at once.
// Proved by tests/number/codec_test.cpp against Layout::read and field_decode.
#pragma once

#include <vector>

#include "number/interpret/program.h"

namespace lumen::interpret {

class Records {
 public:
  Records(const Format& f, Level level, const CellPlan& plan);

  void unpack(const uint8_t* record, Cell* cells) const;
  void pack(const Cell* cells, uint8_t* record) const;  // the record must be zeroed

 private:
  struct Piece {  // bits [bit, bit + count) of the record are bits from value_bit of entry
    int32_t entry;
    int32_t bit;
    uint8_t count, value_bit;
  };
  struct Part {
    const FieldType* type;
    int32_t cell;  // of entry 0
    int32_t entries;
    std::vector<Piece> pieces;
    std::vector<float> values;  // floats of few bits: by code
  };
  std::vector<Part> parts_;
};

// Conversions between raw codes and cells of a field.
Cell cell_from_code(const FieldType& type, uint64_t code);
uint64_t code_from_cell(const FieldType& type, const Cell& cell);

}  // namespace lumen::interpret
