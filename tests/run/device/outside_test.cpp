// needs: none. Bytes outside of a device: files in both ways, pieces of any size, both directions at once; files that
// find no room; jobs of a thread in their order.
#include "run/device/outside/outside.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "run/device/outside/direct_file.h"
#include "run/device/outside/serial_thread.h"

namespace lumen::run {
namespace {

namespace fs = std::filesystem;

fs::path folder() {
  const fs::path path = fs::path(LUMEN_BINARY_DIR) / "outside-test";
  fs::create_directories(path);
  return path;
}

std::vector<std::byte> numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& b : out) b = std::byte(random());
  return out;
}

TEST(DirectFile, HoldsWhatIsWrittenAtAnyPlaceInBothWays) {
  constexpr int64_t kBytes = 24 * (1 << 20) + 4096;
  for (const DirectFile::Transport transport : {DirectFile::Transport::best, DirectFile::Transport::threads}) {
    DirectFile file(folder() / fmt::format("places-{}", transport == DirectFile::Transport::best), kBytes, transport);
    EXPECT_FALSE(transport == DirectFile::Transport::threads && file.uses_ring());
    std::vector<std::byte> all(kBytes), read(kBytes);
    file.read(0, read.data(), kBytes);
    EXPECT_EQ(read, all) << "a new file is not zero";
    std::mt19937 random(7);
    for (int i = 0; i < 40; ++i) {
      const int64_t at = random() % kBytes, bytes = random() % std::min<int64_t>(kBytes - at, i % 2 ? 9000 : 7 << 20);
      const auto piece = numbers(bytes, i);
      file.write(at, piece.data(), bytes);
      std::copy(piece.begin(), piece.end(), all.begin() + at);
      std::vector<std::byte> again(bytes);
      file.read(at, again.data(), bytes);
      ASSERT_EQ(again, piece) << at << " " << bytes;
    }
    file.read(0, read.data(), kBytes);
    EXPECT_EQ(read, all);
  }
}

TEST(DirectFile, ReadsWhileAnotherThreadWrites) {
  constexpr int64_t kHalf = 16 << 20;
  DirectFile file(folder() / "both", 2 * kHalf);
  const auto first = numbers(kHalf, 1), second = numbers(kHalf, 2);
  file.write(0, first.data(), kHalf);
  std::vector<std::byte> read(kHalf);
  std::thread writer([&] { file.write(kHalf, second.data(), kHalf); });
  file.read(0, read.data(), kHalf);
  writer.join();
  EXPECT_EQ(read, first);
  file.read(kHalf, read.data(), kHalf);
  EXPECT_EQ(read, second);
}

TEST(DirectFile, LeavesNoNameAndSaysWhichBytesHaveNoRoom) {
  const fs::path path = folder() / "no-room";
  {
    const DirectFile file(path, 4096);
  }
  EXPECT_FALSE(fs::exists(path));
  const auto refused = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::user);
      return std::string(e.what());
    }
    return std::string();
  };
  std::string text = refused([&] { const DirectFile file(path / "below", 4096); });
  EXPECT_NE(text.find("no-room/below"), std::string::npos) << text;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{8192, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  text = refused([&] { const DirectFile file(path, 1 << 20); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(text.find("1048576 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("no-room"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(path));
  // What goes wrong later names the place as well.
  for (const DirectFile::Transport transport : {DirectFile::Transport::best, DirectFile::Transport::threads}) {
    DirectFile file(path, 1 << 20, transport);
    const auto piece = numbers(1 << 20, 3);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    text = refused([&] { file.write(0, piece.data(), 1 << 20); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(text.find("cannot write"), std::string::npos) << text;
    EXPECT_NE(text.find("no-room"), std::string::npos) << text;
    EXPECT_NE(text.find("File too large"), std::string::npos) << text;
  }
}

TEST(Outside, IsAFileForProcessorsAndNoMemory) {
  const auto device = open_null();
  EXPECT_EQ(outside_in_memory(*device, 4096) == nullptr, device->reads_host_memory());
  EXPECT_EQ(outside_size(1), 4096);
  EXPECT_EQ(outside_size(4096), 4096);
}

TEST(SerialThread, DoesJobsInOrderAndThrowsToWhoWaits) {
  SerialThread thread;
  std::vector<int> order;
  std::vector<SerialThread::Ticket> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(thread.submit([&order, i] {
      if (i % 10 == 3) throw user_error("job {}", i);
      order.push_back(i);
    }));
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 3)
      EXPECT_THROW(thread.wait(tickets[i]), Error);
    else
      thread.wait(tickets[i]);
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), 90U);
}

}  // namespace
}  // namespace lumen::run
