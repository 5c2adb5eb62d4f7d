// needs: none. What is kept between starts belongs to one user: sealed, in folders and files of that user alone.
#include "run/engine/cache/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/file/file.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat info{};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

void overwrite(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

class Kept : public testing::Test {
 protected:
  Kept() : own(folder.path() / "cache" / ("user-" + std::to_string(::geteuid()))) {
    KeptFiles files(cache());
    files.write("kernels", "a", "code of a");
    files.write("kernels", "b", "code of b");
    files.write("plans", "a", "plan of a");
  }
  fs::path cache() const { return folder.path() / "cache"; }
  std::string read(const std::string& kind, const std::string& name) const {
    return KeptFiles(cache()).read(kind, name);
  }
  // What a new start says on stderr.
  std::string said(const fs::path& path) const {
    testing::internal::CaptureStderr();
    KeptFiles files(path);
    EXPECT_FALSE(files.usable());
    EXPECT_FALSE(files.trouble().empty());
    files.write("kernels", "c", "x");  // nothing happens
    EXPECT_EQ(files.read("kernels", "c"), "");
    return testing::internal::GetCapturedStderr();
  }

  TemporaryFolder folder;
  fs::path own;
};

TEST_F(Kept, ComesBack) {
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_EQ(read("plans", "a"), "plan of a");
  EXPECT_EQ(read("plans", "b"), "");
  KeptFiles(cache()).write("plans", "a", "another");
  EXPECT_EQ(read("plans", "a"), "another");
  EXPECT_TRUE(KeptFiles({}).trouble().empty());
  EXPECT_FALSE(KeptFiles({}).usable());
}

TEST_F(Kept, IsForNobodyElse) {
  EXPECT_EQ(mode_of(cache()), 0700U);
  EXPECT_EQ(mode_of(own), 0700U);
  EXPECT_EQ(mode_of(own / "kernels"), 0700U);
  EXPECT_EQ(mode_of(own / "key"), 0600U);
  EXPECT_EQ(mode_of(own / "kernels/a"), 0600U);
  for (const auto& entry : fs::recursive_directory_iterator(cache()))
    EXPECT_FALSE(entry.path().filename().string().ends_with(".part")) << entry.path();
}

TEST_F(Kept, WhatIsNotSealedIsNotTaken) {
  const std::string whole = read_file(own / "kernels/a");
  std::vector<std::string> bad = {"",
                                  "x",
                                  whole.substr(0, 47),
                                  whole.substr(0, whole.size() - 1),
                                  whole + "x",
                                  read_file(own / "kernels/b"),
                                  read_file(own / "plans/a")};
  for (size_t i = 0; i < whole.size(); ++i) {
    bad.push_back(whole);
    bad.back()[i] = static_cast<char>(bad.back()[i] ^ 1);
  }
  for (const std::string& content : bad) {
    overwrite(own / "kernels/a", content);
    EXPECT_EQ(read("kernels", "a"), "");
  }
  overwrite(own / "kernels/a", whole);
  EXPECT_EQ(read("kernels", "a"), "code of a");
}

TEST_F(Kept, AnotherSecretMeansNothingIsTaken) {
  overwrite(own / "key", std::string(32, 'k'));
  EXPECT_EQ(read("kernels", "a"), "");
}

// A secret that others could have read or that is damaged is replaced by a new one.
TEST_F(Kept, ASecretThatIsNoneIsReplaced) {
  const std::string before = read_file(own / "key");
  for (const mode_t mode : {0640U, 0604U, 0620U, 0666U}) {
    ASSERT_EQ(::chmod((own / "key").c_str(), mode), 0);
    EXPECT_EQ(read("kernels", "a"), "");
    EXPECT_EQ(mode_of(own / "key"), 0600U);
    EXPECT_NE(read_file(own / "key"), before);
    KeptFiles(cache()).write("kernels", "a", "again");
    EXPECT_EQ(read("kernels", "a"), "again");
  }
  overwrite(own / "key", "short");
  EXPECT_EQ(read("kernels", "a"), "");
  EXPECT_EQ(fs::file_size(own / "key"), 32U);
  fs::rename(own / "key", folder.path() / "stolen");
  fs::create_symlink(folder.path() / "stolen", own / "key");
  EXPECT_EQ(read("kernels", "a"), "");
  EXPECT_FALSE(fs::is_symlink(own / "key"));
}

// In a folder that others could write to, the secret may be theirs.
TEST_F(Kept, AFolderThatWasOpenIsClosedAndForgotten) {
  ASSERT_EQ(::chmod(own.c_str(), 0770), 0);
  EXPECT_EQ(read("kernels", "a"), "");
  EXPECT_EQ(mode_of(own), 0700U);
  KeptFiles(cache()).write("kernels", "a", "again");
  EXPECT_EQ(read("kernels", "a"), "again");
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);  // only read: nothing is lost
  EXPECT_EQ(read("kernels", "a"), "again");
  EXPECT_EQ(mode_of(own), 0700U);
}

// The folder above may be anybody's: what counts lies below, in a folder of one's own.
TEST_F(Kept, TheFolderAboveMayBeShared) {
  ASSERT_EQ(::chmod(cache().c_str(), 0777), 0);
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_EQ(mode_of(cache()), 0777U) << "it is not ours to close";
}

TEST_F(Kept, FilesOthersCouldHaveWrittenAreNotTaken) {
  for (const mode_t mode : {0620U, 0602U, 0666U}) {
    ASSERT_EQ(::chmod((own / "kernels/a").c_str(), mode), 0);
    EXPECT_EQ(read("kernels", "a"), "");
  }
  ASSERT_EQ(::chmod((own / "kernels/a").c_str(), 0644), 0);
  EXPECT_EQ(read("kernels", "a"), "code of a");
}

TEST_F(Kept, LinksAndOtherThingsAreNotFollowed) {
  fs::rename(own / "kernels/a", folder.path() / "a");
  fs::create_symlink(folder.path() / "a", own / "kernels/a");
  EXPECT_EQ(read("kernels", "a"), "");
  fs::remove(own / "kernels/a");
  fs::create_directory(own / "kernels/a");
  EXPECT_EQ(read("kernels", "a"), "");
  fs::remove(own / "kernels/a");
  ASSERT_EQ(::mkfifo((own / "kernels/a").c_str(), 0600), 0);
  EXPECT_EQ(read("kernels", "a"), "");
  // A folder of another place in the place of ours.
  fs::rename(own, folder.path() / "moved");
  fs::create_directory_symlink(folder.path() / "moved", own);
  const std::string words = said(cache());
  EXPECT_NE(words.find("compiled kernels are not kept"), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << "one line is enough: " << words;
}

TEST_F(Kept, AFolderOfAnotherUserIsRefusedWithAReason) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  ASSERT_EQ(::chown(own.c_str(), 12345, 12345), 0);
  const std::string words = said(cache());
  EXPECT_NE(words.find("belongs to another user (number 12345)"), std::string::npos) << words;
  ASSERT_EQ(::chown(own.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown((own / "kernels/a").c_str(), 12345, 12345), 0);
  EXPECT_EQ(read("kernels", "a"), "");
  ASSERT_EQ(::chown((own / "key").c_str(), 12345, 12345), 0);
  EXPECT_EQ(read("kernels", "b"), "") << "a secret of somebody else";
}

TEST_F(Kept, WithoutAFolderNothingIsKept) {
  overwrite(folder.path() / "file", "");
  EXPECT_NE(said(folder.path() / "file/below").find("compiled kernels are not kept"), std::string::npos);
  EXPECT_NE(said("/proc/nothing").find("compiled kernels are not kept"), std::string::npos);
}

// A full disk, or one that is only read: what is there is read on.
TEST_F(Kept, WhatCannotBeWrittenIsStillRead) {
  testing::internal::CaptureStderr();
  {
    KeptFiles files(cache());
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto signal = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{8192, before.rlim_max};  // what is said goes to a file, too
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    files.write("kernels", "c", std::string(100'000, 'c'));
    files.write("kernels", "d", std::string(100'000, 'd'));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, signal);
    EXPECT_FALSE(files.usable());
    EXPECT_EQ(files.read("kernels", "a"), "code of a");
    EXPECT_EQ(files.read("kernels", "c"), "");
  }
  const std::string words = testing::internal::GetCapturedStderr();
  EXPECT_NE(words.find("compiled kernels are not kept"), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << "one line is enough: " << words;
  for (const auto& entry : fs::recursive_directory_iterator(cache()))
    EXPECT_FALSE(entry.path().filename().string().ends_with(".part")) << entry.path();
}

TEST_F(Kept, ManyAtOnceHaveOneSecret) {
  for (int round = 0; round < 20; ++round) {
    const fs::path fresh = folder.path() / std::to_string(round);
    if (round % 2 == 1) {  // those who find it open to others replace the secret once, not each other's
      KeptFiles(fresh).write("kernels", "x", "code");
      for (const auto& user : fs::directory_iterator(fresh)) ASSERT_EQ(::chmod(user.path().c_str(), 0777), 0);
    }
    std::atomic<int> waiting{8};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        KeptFiles(fresh).write("kernels", std::to_string(i), "code");
      });
    }
    for (std::thread& t : threads) t.join();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(KeptFiles(fresh).read("kernels", std::to_string(i)), "code") << round;
  }
}

// Somebody else's lock on a folder that was open ends in a warning, not in waiting for ever; here it goes in time.
TEST_F(Kept, WaitsForItsTurn) {
  const int other = ::open(own.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  std::thread reader([&] { EXPECT_EQ(read("kernels", "a"), "code of a"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::flock(other, LOCK_UN);
  reader.join();
  ::close(other);
}

TEST_F(Kept, UnfinishedFilesOfLongAgoAreRemoved) {
  overwrite(own / "kernels/.a.1.0.part", "half");
  overwrite(own / "kernels/.b.1.0.part", "half");
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (own / "kernels/.a.1.0.part").c_str(), long_ago, 0), 0);
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_FALSE(fs::exists(own / "kernels/.a.1.0.part"));
  EXPECT_TRUE(fs::exists(own / "kernels/.b.1.0.part")) << "somebody may be writing it";
}

}  // namespace
}  // namespace lumen::run
