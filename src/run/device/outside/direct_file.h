// A file of a fixed size for fast transfers of large pieces: bypasses the page cache (O_DIRECT) if the file system
// supports that, with many concurrent requests, by io_uring if the kernel allows it and by threads otherwise. Proved by
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
  // Creates a file at `path` and unlinks it before returning. Error (exit 1) if there is no room for `bytes`.
  DirectFile(std::filesystem::path path, int64_t bytes, Transport transport = Transport::best);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Both return on completion. One thread may read while another writes; two calls of the same kind are serialized.
  // Error (exit 1) that names the file, the bytes and the system's reason.
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
