// Storage formats of a session's KV caches. Proved by tests/model/infer/cache_format_test.cpp.
#pragma once

#include "number/library/library.h"

namespace lumen::model::infer {

// The format used for a cache, which is written row by row: fields per tile or per tensor become fields per row. Throws
// an Error that lists the usable formats if this one can only be decoded or cannot be written by rows. Null stays null.
FormatRef cache_format(const FormatLibrary& formats, const FormatRef& f);

}  // namespace lumen::model::infer
