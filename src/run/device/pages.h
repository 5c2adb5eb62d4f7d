// The pages of memory that a device allocates.
#pragma once

#include <cstdint>

namespace lumen::run {

// How the system backs a block of a processor's memory. A huge page is zeroed and taken whole when its first byte is
// touched, which is the faster way to memory that is used all over; small ones suit what is filled little by little: a
// cache of 8,192 places has as many huge pages as heads in its layers, and the first token would touch each of them.
enum class Pages : uint8_t { huge, small };

}  // namespace lumen::run
