#include "base/file/transfer.h"

#include <unistd.h>

namespace lumen {

bool write_all(int fd, const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  return move_all(size, [&](size_t done, size_t left) { return ::write(fd, bytes + done, left); });
}

bool write_all_at(int fd, const void* data, size_t size, uint64_t at) {
  const char* const bytes = static_cast<const char*>(data);
  return move_all(size, [&](size_t done, size_t left) { return ::pwrite(fd, bytes + done, left, off_t(at + done)); });
}

bool read_all(int fd, void* data, size_t size) {
  char* const bytes = static_cast<char*>(data);
  return move_all(size, [&](size_t done, size_t left) { return ::read(fd, bytes + done, left); });
}

bool read_all_at(int fd, void* data, size_t size, uint64_t at) {
  char* const bytes = static_cast<char*>(data);
  return move_all(size, [&](size_t done, size_t left) { return ::pread(fd, bytes + done, left, off_t(at + done)); });
}

}  // namespace lumen
