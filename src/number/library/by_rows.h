// Formats that can be written one row at a time. Proved by tests/number/by_rows_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen {

// The format with its tensor or tile fields moved to row level and fitted per row, so that rows can be written one by
// one. The format itself if it has neither; null if it has fields of several levels above the block, which cannot be
// merged into one row record.
FormatRef by_rows(const FormatRef& f);

}  // namespace lumen
