// base/file: whole reads, maps, and atomic writes that survive a full disk and a forgotten commit.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "base/error.h"

namespace lumen {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-file-test-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  int entries() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
};

TEST_F(FileTest, WritesAndReadsBack) {
  write_file_atomic(folder_ / "a", "hello");
  EXPECT_EQ(read_file(folder_ / "a"), "hello");
  const MappedFile map(folder_ / "a");
  EXPECT_EQ(map.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(map.bytes()[4]), 'o');
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, EmptyFileMapsToNothing) {
  write_file_atomic(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST_F(FileTest, WithoutCommitTheOldFileStays) {
  write_file_atomic(folder_ / "a", "old");
  {
    AtomicFile file(folder_ / "a");
    file.write("new but never committed");
  }
  EXPECT_EQ(read_file(folder_ / "a"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, PadsToAlignment) {
  AtomicFile file(folder_ / "a");
  file.write("abc");
  file.pad_to(8);
  EXPECT_EQ(file.position(), 8u);
  file.pad_to(8);
  EXPECT_EQ(file.position(), 8u);
  file.commit();
  EXPECT_EQ(read_file(folder_ / "a"), std::string("abc\0\0\0\0\0", 8));
}

TEST_F(FileTest, FailedWriteLeavesTheOldFileWhole) {
  write_file_atomic(folder_ / "a", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{1 << 16, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomic(folder_ / "a", std::string(1 << 22, 'x')), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(folder_ / "a"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, MistakesHaveClearMessages) {
  try {
    read_file(folder_ / "nowhere");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::user);
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
  }
  EXPECT_THROW(read_file(folder_), Error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  EXPECT_THROW(AtomicFile{folder_ / "no" / "such" / "folder"}, Error);
  write_file_atomic(folder_ / "a", "12345");
  EXPECT_THROW(read_file(folder_ / "a", 4), Error);
}

}  // namespace
}  // namespace lumen
