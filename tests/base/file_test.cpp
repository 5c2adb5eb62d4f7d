// base/file: whole reads, maps, and atomic writes that survive a full disk and a forgotten commit.
#include "base/file/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/file/leave.h"

namespace lumen {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-file-test-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  int entries() const { return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_), {})); }
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

// Pages of files that this process has in its memory.
int64_t file_pages() {
  int64_t all = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> all >> resident >> shared;
  return shared;
}

TEST_F(FileTest, WhatIsLeftToTheFileComesBackAndTakesNoMemory) {
  const size_t bytes = 16 << 20;
  write_file_atomic(folder_ / "a", std::string(bytes, 'x'));
  const MappedFile file(folder_ / "a");
  const std::span<const uint8_t> all(reinterpret_cast<const uint8_t*>(file.bytes().data()), bytes);
  EXPECT_EQ(std::count(all.begin(), all.end(), 'x'), bytes);
  const int64_t before = file_pages(), page = ::sysconf(_SC_PAGESIZE);
  leave_to_file(all.subspan(1000, bytes / 2));
  EXPECT_LT(file_pages(), before - (6 << 20) / page);
  EXPECT_EQ(std::count(all.begin(), all.end(), 'x'), bytes);
  // All that is asked for is there at once.
  leave_to_file(all);
  const int64_t left = file_pages();
  bring_from_file(all.subspan(1000, bytes / 2));
  EXPECT_GE(file_pages(), left + static_cast<int64_t>(bytes / 2) / page);
  // What is no map of a file is not touched.
  std::vector<uint8_t> own(bytes, 7);
  EXPECT_TRUE(is_in_file(all));
  EXPECT_FALSE(is_in_file(own));
  EXPECT_FALSE(is_in_file({}));
  EXPECT_FALSE(is_in_file({all.data() + 1, bytes}));
  leave_to_file(own);
  bring_from_file(own);
  leave_to_file({});
  EXPECT_EQ(std::count(own.begin(), own.end(), 7), bytes);
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

// What a process that was killed left of a file goes with the next one that is written in its place; what another is
// writing stays.
TEST_F(FileTest, LeavingsOfTheDeadAreRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile a(folder_ / "model.gguf");
    AtomicFile b(folder_ / "model-00002-of-00005.gguf");
    AtomicFile c(folder_ / "other.gguf");
    AtomicFolder d(folder_ / "hf");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(entries(), 4);
  AtomicFile alive(folder_ / "model.gguf");
  EXPECT_EQ(entries(), 3) << "that of model.gguf, its numbered one and this";
  {
    AtomicFile again(folder_ / "model.gguf");
    EXPECT_EQ(entries(), 4) << "nobody takes what is being written";
  }
  write_file_atomic(folder_ / "other.gguf", "x");
  AtomicFolder(folder_ / "hf").commit();
  alive.commit();
  EXPECT_EQ(entries(), 3);
  write_file_atomic(folder_ / ".notes.part", "somebody else's");
  write_file_atomic(folder_ / "notes", "x");
  EXPECT_TRUE(std::filesystem::exists(folder_ / ".notes.part"));
}

TEST_F(FileTest, OnlyFilesAreReplaced) {
  std::filesystem::create_directory(folder_ / "sub");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder_ / "sub", folder_ / "pipe", std::filesystem::path("/dev/null")}) {
    EXPECT_THROW(AtomicFile{path}, Error) << path;
    EXPECT_THROW(require_writable(path), Error) << path;
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THROW(require_writable(folder_ / "absent/file"), Error);
  require_writable(folder_ / "new");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  EXPECT_EQ(entries(), 2);
}

TEST_F(FileTest, AFolderAppearsWholeOrNotAtAll) {
  const std::filesystem::path target = folder_ / "a/b/model";
  {
    AtomicFolder folder(target);
    write_file_atomic(folder.path() / "x", "1");
    EXPECT_FALSE(std::filesystem::exists(target));
  }
  EXPECT_EQ(entries(), 0) << "the folders above went, too";
  {
    AtomicFolder folder(target);
    write_file_atomic(folder.path() / "x", "1");
    folder.commit();
  }
  EXPECT_EQ(read_file(target / "x"), "1");
  {
    AtomicFolder again(target);  // one that is there: file by file, but all or none
    write_file_atomic(again.path() / "x", "2");
    write_file_atomic(again.path() / "y", "3");
  }
  EXPECT_EQ(read_file(target / "x"), "1");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target), {}), 1);
  {
    AtomicFolder again(target);
    write_file_atomic(again.path() / "x", "2");
    write_file_atomic(again.path() / "y", "3");
    again.commit();
  }
  EXPECT_EQ(read_file(target / "x") + read_file(target / "y"), "23");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target), {}), 2);
  EXPECT_THROW(AtomicFolder{target / "x"}, Error);
  EXPECT_THROW(require_writable_folder(target / "x/z"), Error);
  require_writable_folder(folder_ / "c/d");
  require_writable_folder(target);
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace lumen
