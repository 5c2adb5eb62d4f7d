// Whether a format stores each element as a code of its own, under fields that others share, so that one element can be
// rounded the other way and nothing else changes. Found by looking at what decoding gives, so that it holds for every
// way in which a format may be written. Proved by tests/model/compress/recover/element_codes_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "number/format/format.h"

namespace lumen::model {

struct ElementCodes {
  int field = -1;  // of the format: a code for each element of a block
  int bits = 0;
  // Elements of a group decode every code alike, whatever the fields hold. `group` and `index` (the element's place in
  // its group) by place in a block; of formats whose blocks have no fields a group is what shares a row's, tile's or
  // tensor's, cut at rows, and these are empty.
  int groups = 1;
  std::vector<int32_t> group, index;
  // Columns whose groups are those of one block or, without such, that share the fields above.
  int64_t span(const Format& f, int64_t columns) const;
};

// `why`: what users are told where there are none.
bool find_element_codes(const Format& f, ElementCodes* out, std::string* why);

}  // namespace lumen::model
