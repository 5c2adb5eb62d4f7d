// needs: none. Temporary files: what a signal removes, and what the next run removes of a killed one.
#include "base/file/temporary.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/file/file.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

class Temporary : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-temporary-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.insert(entry.path().filename().string());
    return out;
  }
  void make(const std::string& name) const { std::ofstream(folder_ / name) << "x"; }
  fs::path folder_;
};

// The number of a process that has ended.
pid_t dead() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_F(Temporary, AHandlerRemovesThem) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGTERM, [](int) {
      remove_temporaries();
      ::_exit(9);
    });
    AtomicFile a(folder_ / "a"), b(folder_ / "b");
    a.write("half");
    {
      AtomicFile gone(folder_ / "gone");
    }
    write_file_atomic(folder_ / "whole", "whole");
    AtomicFolder folder(folder_ / "folder");
    fs::create_directories(folder.path() / "deep/deeper");
    for (const char* name : {"a", ".b", "deep/c", "deep/deeper/d"}) std::ofstream(folder.path() / name) << "half";
    ::raise(SIGTERM);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 9);
  EXPECT_EQ(names(), std::set<std::string>{"whole"});
}

TEST_F(Temporary, TheNextRunRemovesLeavings) {
  const std::string killed = "." + std::string("model.gguf.") + std::to_string(dead()) + ".3.part";
  const std::string living = ".model.gguf." + std::to_string(::getppid()) + ".0.part";
  const std::string reused = ".model.gguf." + std::to_string(::getpid()) + ".99999.part";
  for (const std::string& name : {killed, living, reused, std::string("mine.part"), std::string(".x.part"),
                                  std::string(".a.b.c.part"), std::string(".1.2.part")})
    make(name);
  // Its writer lives, and holds the lock.
  const int held = ::open((folder_ / living).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  AtomicFile open(folder_ / "open");
  remove_leavings(folder_);
  ::close(held);
  const auto left = names();
  EXPECT_FALSE(left.contains(killed));
  EXPECT_FALSE(left.contains(reused)) << "a killed process had this one's number";
  EXPECT_TRUE(left.contains(living));
  for (const char* name : {"mine.part", ".x.part", ".a.b.c.part", ".1.2.part"})
    EXPECT_TRUE(left.contains(name)) << name;
  EXPECT_EQ(left.size(), 6U) << "the open file is still there";
  open.commit();
  EXPECT_TRUE(names().contains("open"));
  EXPECT_NO_THROW(remove_leavings(folder_ / "absent"));
}

// In a container processes have few numbers: a killed one may have left the very name.
TEST_F(Temporary, ANameThatIsTakenIsNoError) {
  for (int i = 0; i < 50; ++i) make(".out." + std::to_string(::getpid()) + "." + std::to_string(i) + ".part");
  EXPECT_NO_THROW(write_file_atomic(folder_ / "out", "text"));
  EXPECT_EQ(read_file(folder_ / "out"), "text");
}

}  // namespace
}  // namespace lumen
