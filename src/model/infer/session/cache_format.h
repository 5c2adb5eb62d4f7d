// In what formats the caches of a session are held. Proved by tests/model/infer/cache_format_test.cpp.
#pragma once

#include "number/library/library.h"

namespace lumen::model {

// The format as a cache holds it, which is written row by row: one with fields of tiles or tensors gets those for each
// row. Error with the formats that can be taken when this one only decodes or cannot be written so. Null stays null.
FormatRef cache_format(const FormatLibrary& formats, const FormatRef& f);

}  // namespace lumen::model
