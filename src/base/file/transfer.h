// Complete reads and writes of ranges: one system call may move fewer bytes than requested, or be interrupted. Proved
// by tests/base/file_test.cpp and tests/base/sealed/sealed_test.cpp.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace lumen {

// Calls move(done, left), which returns a byte count as pread does, until `size` bytes are moved. False when a call
// fails or the file ends.
template <typename Move>
bool move_all(size_t size, const Move& move) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = move(done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += n;
  }
  return true;
}

bool write_all(int fd, const void* data, size_t size);
bool write_all_at(int fd, const void* data, size_t size, uint64_t at);
bool read_all(int fd, void* data, size_t size);
bool read_all_at(int fd, void* data, size_t size, uint64_t at);

}  // namespace lumen
