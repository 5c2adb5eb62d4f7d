// Whether a format stores each element as its own code under shared fields, so that one element can be rounded the
// other way without other changes. Found by decoding, so any formulation of a format works. Proved by
// tests/model/compress/reconstruction/element_codes_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "number/format/format.h"

namespace lumen::model::compress {

struct ElementCodes {
  int field = -1;  // of the format: a code for each element of a block
  int bits = 0;
  // Elements of a group decode every code alike, for any fields. `group` and `index` (the element's index in its group)
  // by position in a block. In formats without block fields a group is the part of a row that shares a row's, tile's or
  // tensor's fields, and these are empty.
  int groups = 1;
  std::vector<int32_t> group, index;
  // The columns of one block's groups, or without block fields, the columns that share the higher-level fields.
  int64_t span(const Format& f, int64_t columns) const;
};

// `why`: the message for users where there are none.
bool find_element_codes(const Format& f, ElementCodes* out, std::string* why);

}  // namespace lumen::model::compress
