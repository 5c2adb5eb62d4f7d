// needs: none. Files of prefixes are taken only where they say, whole, what is asked for, and stay within their bound.
#include "model/infer/prefixes/prefixes.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace {

std::atomic<int> g_flushes;

}  // namespace

// Counted, and done.
extern "C" int fsync(int file) {
  ++g_flushes;
  return int(::syscall(SYS_fsync, file));
}

namespace lumen::model::infer {
namespace {

namespace fs = std::filesystem;

const std::vector<text::TokenId> kTokens = {5, 1, 4, 1, 5, 9, 2, 6};

fs::path files_of(const TestFolder& folder) {
  return folder / fmt::format("user-{}", ::geteuid()) / "prefixes";
}

fs::path only_file(const TestFolder& folder) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(files_of(folder))) all.push_back(entry.path());
  EXPECT_EQ(all.size(), 1U);
  return all.at(0);
}

TEST(PrefixFiles, WhatIsKeptIsThereAfterARestart) {
  const TestFolder folder;
  const auto tokens = std::span(kTokens);
  {
    PrefixFiles files(folder.path(), 1 << 20, "one");
    EXPECT_FALSE(files.has("a", tokens));
    files.write("a", tokens, "content");
    EXPECT_EQ(files.read("a", tokens, 7), "content");
  }
  PrefixFiles files(folder.path(), 1 << 20, "one");
  EXPECT_TRUE(files.has("a", tokens));
  EXPECT_EQ(files.read("a", tokens, 7), "content");
  EXPECT_EQ(files.read("b", tokens, 7), std::nullopt);           // another model or adapter
  EXPECT_EQ(files.read("a", tokens.first(7), 7), std::nullopt);  // other tokens
  PrefixFiles other(folder.path(), 1 << 20, "two");              // another program
  EXPECT_EQ(other.read("a", tokens, 7), std::nullopt);
  const fs::perms open = fs::perms::group_all | fs::perms::others_all;
  EXPECT_EQ(fs::status(only_file(folder)).permissions() & open, fs::perms::none);
  EXPECT_EQ(fs::status(files_of(folder)).permissions() & open, fs::perms::none);
  EXPECT_EQ(files.numbers().refused, 0);
}

// One byte of each kind is another one, the file is shorter, longer, empty, a link or a folder, or open to others.
TEST(PrefixFiles, DamagedFilesAreRemoved) {
  const TestFolder folder;
  const auto tokens = std::span(kTokens);
  const std::string owner = "the owner", revision = "the revision", content(300, 'x');
  PrefixFiles first(folder.path(), 1 << 20, revision);
  first.write(owner, tokens, content);
  first.finish();
  const fs::path path = only_file(folder);
  const std::string whole = read_file(path);
  std::vector<std::string> damaged = {"", whole.substr(0, 40), whole.substr(0, whole.size() - 1), whole + "y"};
  // The magic number, the size, the seal, the first lines, revision, owner, tokens, the first and last of the content.
  for (const size_t at : {size_t{0}, size_t{9}, size_t{20}, whole.find("prefix 1"), whole.find(revision),
                          whole.find(owner), whole.find(content) - 3, whole.find(content), whole.size() - 1}) {
    ASSERT_LT(at, whole.size());
    damaged.push_back(whole);
    damaged.back()[at] = char(damaged.back()[at] ^ 0x10);
  }
  int64_t refused = 0;
  for (const std::string& bytes : damaged) {
    write_file_atomic(path, bytes);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    PrefixFiles files(folder.path(), 1 << 20, revision);
    EXPECT_TRUE(files.has(owner, tokens));
    EXPECT_EQ(files.read(owner, tokens, 300), std::nullopt) << bytes.size();
    EXPECT_FALSE(files.has(owner, tokens));
    EXPECT_FALSE(fs::exists(path));
    refused += files.numbers().refused;
  }
  EXPECT_EQ(refused, std::ssize(damaged));
  write_file_atomic(path, whole);
  fs::permissions(path, fs::perms::owner_all | fs::perms::others_all);
  EXPECT_EQ(PrefixFiles(folder.path(), 1 << 20, revision).read(owner, tokens, 300), std::nullopt);
  write_file_atomic(folder / "elsewhere", whole);
  fs::create_symlink(folder / "elsewhere", path);
  EXPECT_EQ(PrefixFiles(folder.path(), 1 << 20, revision).read(owner, tokens, 300), std::nullopt);
  EXPECT_TRUE(fs::exists(folder / "elsewhere"));
  fs::create_directory(path);
  PrefixFiles files(folder.path(), 1 << 20, revision);
  EXPECT_EQ(files.read(owner, tokens, 300), std::nullopt);
  files.write(owner, tokens, content);  // which cannot be: a warning
  files.finish();
  EXPECT_EQ(files.read(owner, tokens, 300), std::nullopt);
}

TEST(PrefixFiles, WhatWasNotAskedForTheLongestMakesRoom) {
  const TestFolder folder;
  const auto tokens = std::span(kTokens);
  const std::string content(10'000, 'x');
  {
    PrefixFiles files(folder.path(), 50'000, "one");
    for (size_t n = 1; n <= 3; ++n) files.write("a", tokens.first(n), content);
    EXPECT_EQ(files.numbers().files, 3);
    files.touch("a", tokens.first(1));
    files.write("a", tokens.first(4), content);
    EXPECT_EQ(files.numbers().dropped, 1);
    EXPECT_TRUE(files.has("a", tokens.first(1)) && !files.has("a", tokens.first(2)));
    files.write("a", tokens, std::string(60'000, 'x'));  // never fits
    EXPECT_EQ(files.numbers().files, 3);
  }
  // A smaller bound at the next start; the order is still known.
  const PrefixFiles files(folder.path(), 25'000, "one");
  EXPECT_LE(files.numbers().bytes, 25'000);
  EXPECT_TRUE(files.has("a", tokens.first(4)) && files.has("a", tokens.first(1)) && !files.has("a", tokens.first(3)));
}

// What is given is there before it is on the disk; what made room before it got there is nowhere.
TEST(PrefixFiles, WhatIsOnItsWayIsThere) {
  const TestFolder folder;
  const std::string content(50'000, 'x');
  PrefixFiles files(folder.path(), 200'000, "one");
  std::vector<text::TokenId> tokens;
  for (text::TokenId id = 0; id < 40; ++id) {
    tokens.push_back(id);
    files.write("a", tokens, content);
    files.write("a", tokens, content);  // is there
    EXPECT_EQ(files.read("a", tokens, 50'000), content);
  }
  files.finish();
  const PrefixNumbers numbers = files.numbers();
  EXPECT_EQ(numbers.files, 3);
  EXPECT_EQ(numbers.dropped, 37);
  EXPECT_LE(numbers.written, 40);
  EXPECT_EQ(std::distance(fs::directory_iterator(files_of(folder)), fs::directory_iterator()), 3);
}

TEST(PrefixFiles, FilesAreFlushedBeforeTheyHaveTheirNames) {
  const TestFolder folder;
  PrefixFiles files(folder.path(), 1 << 20, "one");
  const int before = g_flushes;
  files.write("a", kTokens, "content");
  files.finish();
  EXPECT_EQ(g_flushes - before, 2);  // the file, and the folder for its name
}

TEST(PrefixFiles, AFolderThatCannotBeHadIsOneWarning) {
  const TestFolder folder;
  write_file_atomic(folder / "file", "x");
  testing::internal::CaptureStderr();
  PrefixFiles files(folder / "file", 1 << 20, "one");
  const std::vector<text::TokenId> tokens = {1, 2, 3};
  files.write("owner", tokens, "content");
  files.finish();
  EXPECT_FALSE(files.read("owner", tokens, 7));
  const std::string words = testing::internal::GetCapturedStderr();
  EXPECT_NE(words.find("the prefix cache on disk is off"), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << words;
}

}  // namespace
}  // namespace lumen::model::infer
