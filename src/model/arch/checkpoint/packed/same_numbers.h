// Whether one format's numbers can be stored exactly in another: each field of the second is a field of the first or a
// constant, and each code of the first has one of the second that decodes to the same float. Decided by comparing both
// decoders, for every code and for sampled values of the other fields; names do not matter. Proved by
// tests/model/arch/pack_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "number/format/format.h"

namespace lumen::model::arch {

// Which entries of a format's fields decode an element of its block.
struct FieldUse {
  int code = -1;                            // the field with an entry of its own for each element
  std::vector<std::vector<int64_t>> entry;  // by field, then element; empty where a field is not read
  std::vector<int64_t> run;                 // by field: adjacent elements that share an entry; 0 where it is not read
};
// nullopt where an element has several codes, or entries that are not a function of its position.
std::optional<FieldUse> field_use(const Format& f);

struct SameNumbers {
  struct Source {
    int field = -1;         // of the first; -1: a constant
    uint64_t constant = 0;  // its bits
  };
  std::vector<Source> fields;  // by field of the second; its code field maps to the first's
  std::vector<uint8_t> codes;  // by code of the first
};
std::optional<SameNumbers> same_numbers(const Format& first, const Format& second);

// The bits of a field's value in another type; nullopt where that cannot hold the value exactly.
std::optional<uint64_t> in_type(const FieldType& from, const FieldType& to, uint64_t bits);

}  // namespace lumen::model::arch
