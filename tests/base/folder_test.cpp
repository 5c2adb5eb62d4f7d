// needs: none. Folders listed and removed, also where there is no memory left for a name.
#include "base/file/folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-folder-XXXXXX").string();
    root = ::mkdtemp(name.data());
    for (const char* folder : {"b", "b/deep", "b/deep/er"}) fs::create_directory(root / folder);
    for (const char* file : {"c", "a", "b/x", "b/deep/er/y", ".hidden"}) std::ofstream(root / file) << file;
    fs::create_directory_symlink("b", root / "link");
  }
  void TearDown() override { fs::remove_all(root); }
  fs::path root;
};

TEST_F(FolderTest, ListsInTheOrderOfBytes) {
  EXPECT_EQ(list_folder(root), (Paths{root / ".hidden", root / "a", root / "b", root / "c", root / "link"}));
  EXPECT_EQ(list_folder(root / "link"), (Paths{root / "link/deep", root / "link/x"})) << "a link that was asked for";
}

TEST_F(FolderTest, ListsBelowWithoutFollowingLinks) {
  std::error_code failure;
  EXPECT_EQ(list_below(root / "b"), (Paths{root / "b/deep", root / "b/deep/er", root / "b/deep/er/y", root / "b/x"}));
  EXPECT_EQ(list_below(root, failure, 0), list_folder(root));
  EXPECT_EQ(list_below(root, failure, 1), (Paths{root / ".hidden", root / "a", root / "b", root / "b/deep",
                                                 root / "b/x", root / "c", root / "link"}));
  EXPECT_FALSE(failure);
  EXPECT_EQ(list_below(root), list_below(root, failure));
}

TEST_F(FolderTest, SaysWhatCannotBeRead) {
  std::error_code failure;
  EXPECT_TRUE(list_folder(root / "none", failure).empty());
  EXPECT_EQ(failure, std::errc::no_such_file_or_directory);
  EXPECT_TRUE(list_folder("", failure).empty());
  EXPECT_EQ(failure, std::errc::no_such_file_or_directory) << "not the current folder";
  EXPECT_TRUE(list_below("", failure).empty());
  EXPECT_TRUE(list_folder(root / "a", failure).empty());
  EXPECT_EQ(failure, std::errc::not_a_directory);
  (void)list_folder(root, failure);
  EXPECT_FALSE(failure) << "what was wrong before";
  try {
    (void)list_folder(root / "none");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find((root / "none").string()), std::string::npos) << e.what();
  }
  EXPECT_THROW((void)list_below(root / "none"), Error);
}

TEST_F(FolderTest, RemovesTreesAndNotWhatLinksLeadTo) {
  std::error_code failure;
  fs::create_directory(root / "gone");
  fs::create_directory_symlink(root / "b", root / "gone" / "link");
  std::ofstream(root / "gone" / "file") << 1;
  remove_tree(root / "gone", failure);
  EXPECT_FALSE(failure) << failure.message();
  EXPECT_FALSE(fs::exists(root / "gone"));
  EXPECT_TRUE(fs::exists(root / "b/deep/er/y"));
  remove_tree(root / "gone", failure);
  EXPECT_FALSE(failure) << "it was not there";
  remove_tree(root / "link");
  EXPECT_TRUE(fs::exists(root / "b/x"));
  remove_tree(root / "b");
  EXPECT_FALSE(fs::exists(root / "b"));
  remove_tree("/proc/self/status", failure);
  EXPECT_TRUE(failure) << "what cannot be removed is said";
  EXPECT_THROW(remove_tree("/proc/self/status"), Error);
}

// Of a process that may not have more memory: an exception that can be caught, or whole work, not an end.
TEST_F(FolderTest, WithoutMemoryIsAnException) {
  for (int i = 0; i < 3000; ++i) std::ofstream(root / ("b/" + std::string(180, 'n') + std::to_string(i)));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<std::string> taken;
    try {
      const rlimit limit{1, 1};
      if (::setrlimit(RLIMIT_AS, &limit) != 0 || ::setrlimit(RLIMIT_DATA, &limit) != 0) ::_exit(2);
      for (;;) taken.emplace_back(4096, 'x');  // what the heap has left
    } catch (const std::bad_alloc&) {
    }
    try {
      for (;;) (void)list_below(root / "b");
    } catch (const std::bad_alloc&) {
      std::error_code failure;
      remove_tree(root / "b", failure);
      ::_exit(failure == std::errc::not_enough_memory ? 0 : 3);
    } catch (const Error&) {
      ::_exit(0);  // the system had none for the folder's stream
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lumen
