// A file of a fixed size for fast transfers of large pieces: past the page cache (O_DIRECT) where the file system has
// that, with many requests at once, by io_uring where the kernel allows it and by threads otherwise. Proved by
// tests/run/device/outside_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace lumen::run {

class DirectFile {
 public:
  enum class Transport : uint8_t { best, threads };
  // A new file under `path`, whose name is gone when this returns. Error (exit 1) when there is no room for so many
  // bytes.
  DirectFile(std::filesystem::path path, int64_t bytes, Transport transport = Transport::best);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Both return when all is done. A thread may read while another one writes; two that do the same take turns. Error
  // (exit 1) that names the file, the bytes and the system's reason.
  void read(int64_t at, std::byte* to, int64_t bytes);
  void write(int64_t at, const std::byte* from, int64_t bytes);

  int64_t bytes() const { return bytes_; }
  bool is_direct() const { return direct_; }
  bool uses_ring() const;
  std::string describe() const;

  class Queue;

 private:
  void transfer(bool writes, int64_t at, std::byte* memory, int64_t bytes);

  std::filesystem::path path_;
  int64_t bytes_;
  int fd_ = -1;
  bool direct_ = true;
  std::unique_ptr<Queue> reads_, writes_;
};

}  // namespace lumen::run
