// needs: none. One writer for a folder, however the earlier one ended.
#include "base/file/lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

class LockTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-lock-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  // A process that holds the lock of folder_ until it is killed.
  pid_t holder() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const FolderLock lock(folder_);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  fs::path folder_;
};

TEST_F(LockTest, TheSecondIsRefusedWithTheHoldersNumber) {
  const pid_t child = holder();
  try {
    const FolderLock second(folder_);
    ADD_FAILURE() << "two locks of one folder";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_NE(std::string(e.what()).find(std::to_string(child)), std::string::npos) << e.what();
    EXPECT_FALSE(e.hint().empty());
  }
  // Killed, it leaves its file, but not the lock.
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(fs::is_empty(folder_));
  EXPECT_NO_THROW(FolderLock{folder_});
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(LockTest, AFolderMadeForNothingGoesAgain) {
  {
    const FolderLock lock(folder_ / "a" / "b");
  }
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  {
    const FolderLock lock(folder_ / "a" / "b");
    fs::create_directory(folder_ / "a" / "kept");
  }
  EXPECT_TRUE(fs::exists(folder_ / "a" / "kept"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "b"));
  fs::create_directory(folder_ / "there");
  {
    const FolderLock lock(folder_ / "there");
  }
  EXPECT_TRUE(fs::exists(folder_ / "there"));
}

TEST_F(LockTest, OfOneProcessToo) {
  {
    const FolderLock first(folder_ / "new");
    EXPECT_THROW(FolderLock{folder_ / "new"}, Error);
    EXPECT_NO_THROW(FolderLock{folder_});
  }
  EXPECT_NO_THROW(FolderLock{folder_ / "new"});
}

TEST_F(LockTest, FoldersThatCannotBeWritten) {
  EXPECT_THROW(FolderLock{"/proc/self"}, Error);
  fs::create_symlink("/etc/passwd", folder_ / ".lumen.lock");  // nothing is written through a link
  EXPECT_THROW(FolderLock{folder_}, Error);
}

}  // namespace
}  // namespace lumen
