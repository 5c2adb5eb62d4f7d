#include "run/device/outside/outside.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"
#include "base/threads/team.h"
#include "run/device/outside/direct_file.h"

namespace lumen::run {
namespace {

constexpr int64_t kChunk = int64_t{8} << 20;  // for transfers through page-locked memory

// A file, for devices with memory in this process's address space.
class InFile : public Outside {
 public:
  InFile(const std::filesystem::path& path, int64_t bytes) : file_(path, bytes) {}
  std::string describe() const override { return file_.describe(); }
  void bring(int64_t at, std::byte* to, int64_t bytes) override { file_.read(at, to, bytes); }
  void take(int64_t at, const std::byte* from, int64_t bytes) override { file_.write(at, from, bytes); }
  void read(int64_t at, std::byte* to, int64_t bytes) override { file_.read(at, to, bytes); }
  void write(int64_t at, const std::byte* from, int64_t bytes) override { file_.write(at, from, bytes); }

 protected:
  DirectFile file_;
};

// The same through double-buffered page-locked memory: while one buffer is transferred, the other is read or written.
class InFileByLanes : public InFile {
 public:
  InFileByLanes(Device& device, const std::filesystem::path& path, int64_t bytes)
      : InFile(path, bytes), up_(device), down_(device) {}

  void bring(int64_t at, std::byte* to, int64_t bytes) override {
    for (int64_t done = 0, i = 0; done < bytes; done += kChunk, ++i) {
      const int64_t size = std::min(kChunk, bytes - done);
      file_.read(at + done, up_.buffer(i), size);
      up_.lane->wait();
      up_.lane->in(to + done, up_.buffer(i), size);
    }
    up_.lane->wait();
  }

  void take(int64_t at, const std::byte* from, int64_t bytes) override {
    const int64_t chunks = (bytes + kChunk - 1) / kChunk;
    const auto size_of = [&](int64_t i) { return std::min(kChunk, bytes - i * kChunk); };
    for (int64_t i = 0; i <= chunks; ++i) {
      if (i < chunks) down_.lane->out(down_.buffer(i), from + i * kChunk, size_of(i));
      if (i > 0) file_.write(at + (i - 1) * kChunk, down_.buffer(i - 1), size_of(i - 1));
      down_.lane->wait();
    }
  }

 private:
  struct Transport {
    explicit Transport(Device& device)
        : memory(device.allocate_locked(2 * kChunk + kOutsideAlignment)), lane(device.make_lane()) {
      const auto address = reinterpret_cast<uintptr_t>(memory.get());
      shift = outside_size(address) - address;
    }
    std::byte* buffer(int64_t i) const { return memory.get() + shift + i % 2 * kChunk; }
    std::shared_ptr<std::byte> memory;
    std::unique_ptr<Device::Lane> lane;
    int64_t shift = 0;
  };
  Transport up_, down_;
};

class InMemory : public Outside {
 public:
  InMemory(Device& device, int64_t bytes)
      : bytes_(bytes), memory_(device.allocate_locked(bytes)), up_(device.make_lane()), down_(device.make_lane()) {
    // Tens of gigabytes: one thread would need a minute to touch the pages.
    constexpr int64_t kPiece = int64_t{64} << 20;
    parallel_for(0, (bytes + kPiece - 1) / kPiece, {.grain = 1}, [&](int64_t i) {
      std::fill_n(memory_.get() + i * kPiece, std::min(kPiece, bytes - i * kPiece), std::byte{0});
    });
  }
  std::string describe() const override { return "memory of the host"; }
  void bring(int64_t at, std::byte* to, int64_t bytes) override {
    up_->in(to, place(at, bytes), bytes);
    up_->wait();
  }
  void take(int64_t at, const std::byte* from, int64_t bytes) override {
    down_->out(place(at, bytes), from, bytes);
    down_->wait();
  }
  void read(int64_t at, std::byte* to, int64_t bytes) override { std::memcpy(to, place(at, bytes), bytes); }
  void write(int64_t at, const std::byte* from, int64_t bytes) override { std::memcpy(place(at, bytes), from, bytes); }

 private:
  std::byte* place(int64_t at, int64_t bytes) const {
    LUMEN_CHECK(at >= 0 && bytes >= 0 && bytes <= bytes_ - at, "{} bytes at {} of {}", bytes, at, bytes_);
    return memory_.get() + at;
  }
  int64_t bytes_;
  std::shared_ptr<std::byte> memory_;
  std::unique_ptr<Device::Lane> up_, down_;
};

}  // namespace

int64_t outside_size(int64_t bytes) {
  return round_up(bytes, kOutsideAlignment);
}

std::unique_ptr<Outside> outside_in_file(Device& device, const std::filesystem::path& folder, int64_t bytes) {
  static std::atomic<int> made = 0;
  // The file is unlinked right after opening; until then processes of other hosts may share the folder.
  const std::filesystem::path path =
      folder / fmt::format("lumen-offload-{}-{}-{:08x}", ::getpid(), ++made, std::random_device()());
  if (device.reads_host_memory()) return std::make_unique<InFile>(path, outside_size(bytes));
  return std::make_unique<InFileByLanes>(device, path, outside_size(bytes));
}

std::unique_ptr<Outside> outside_in_memory(Device& device, int64_t bytes) {
  if (device.reads_host_memory()) return nullptr;
  return std::make_unique<InMemory>(device, bytes);
}

}  // namespace lumen::run
