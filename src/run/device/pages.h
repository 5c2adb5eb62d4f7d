// Page size of memory that a device allocates.
#pragma once

#include <cstdint>

namespace lumen::run {

// Page size of a block of a CPU's memory. A huge page is zeroed and allocated at the first access to any of its bytes,
// which is faster for memory that is used completely; small pages suit memory that is filled gradually: a KV cache of
// 8,192 positions has as many huge pages as heads in its layers, and the first token would touch each of them.
enum class Pages : uint8_t { huge, small };

}  // namespace lumen::run
