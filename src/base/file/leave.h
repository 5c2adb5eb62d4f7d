// Memory of mapped files: finds it, prefetches it, and releases pages that are no longer needed. Released pages stay in
// the file and in the kernel's page cache, but do not count as this process's memory. Proved by
// tests/base/file_test.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lumen {

// Whether all of `range` lies in one mapped file.
bool is_in_file(std::span<const uint8_t> range);

// Loads all pages of a mapped file in `range` with one request and waits for them; threads that fault pages one by one
// wait for each other. Has no effect on other memory.
void bring_from_file(std::span<const uint8_t> range);

// Releases the pages of mapped files in and around `range`; the next access reads them again. Has no effect on other
// memory.
void leave_to_file(std::span<const uint8_t> range);

}  // namespace lumen
