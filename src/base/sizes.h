// Amounts of bytes as messages say them. Proved by tests/base/sizes_test.cpp.
#pragma once

#include <string>

namespace lumen {

// "512 bytes", "1.50 KiB", "23.4 GiB": in the largest unit of which there is one, so that nothing but zero reads as
// zero.
std::string size_text(double bytes);

}  // namespace lumen
