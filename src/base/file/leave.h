// Memory of mapped files: which that is, and what is no longer needed of it, which stays in the file, and in the
// system's cache, but does not count as this process's. Proved by tests/base/file_test.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lumen {

// Whether all of `range` lies in one mapped file.
bool is_in_file(std::span<const uint8_t> range);

// Asks for the pages of a mapped file in `range` all at once, and waits for them: several threads that touch them one
// by one wait for each other. Other memory stays as it is.
void bring_from_file(std::span<const uint8_t> range);

// Pages of mapped files in `range` and around it; they are read again where they are touched. Other memory stays as it
// is.
void leave_to_file(std::span<const uint8_t> range);

}  // namespace lumen
