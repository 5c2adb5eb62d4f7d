// needs: none. Files that are read are not written over, by whatever name and however late; links stay.
#include "base/file/protected.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

class ProtectedTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lumen-protected-test-{}", ::getpid());
    fs::create_directories(folder_ / "sub");
    write_file_atomic(file(), "input");
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path file() const { return folder_ / "input"; }
  // What is said when `path` is written; empty when it was.
  static std::string refusal(const fs::path& path) {
    try {
      write_file_atomic(path, "output");
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }
  fs::path folder_;
};

TEST_F(ProtectedTest, IsFoundBehindEveryName) {
  fs::create_symlink(file(), folder_ / "soft");
  fs::create_hard_link(file(), folder_ / "hard");
  fs::create_directory_symlink(folder_, folder_ / "sub" / "back");
  const fs::path names[] = {file(), folder_ / "soft", folder_ / "hard", folder_ / "sub" / ".." / "input",
                            folder_ / "sub" / "back" / "input"};
  for (const fs::path& protect : names) {
    ProtectedFiles inputs;
    inputs.add(protect);
    for (const fs::path& name : names) {
      EXPECT_NE(refusal(name).find("is read and would be written over"), std::string::npos) << name;
    }
    EXPECT_EQ(refusal(folder_ / "other"), "");
    EXPECT_EQ(refusal(folder_ / "other"), "");  // replaced
  }
  EXPECT_EQ(read_file(file()), "input");
  EXPECT_EQ(refusal(file()), "");  // nobody reads it any more
}

TEST_F(ProtectedTest, IsAskedAgainBeforeTheFileIsMoved) {
  ProtectedFiles inputs;
  inputs.add(file());
  AtomicFile late(folder_ / "late");
  late.write("output");
  fs::create_hard_link(file(), folder_ / "late");  // hours later
  EXPECT_THROW(late.commit(), Error);
  EXPECT_EQ(read_file(file()), "input");

  AtomicFolder folder(folder_ / "sub");
  write_file_atomic(folder.path() / "model", "output");
  fs::create_hard_link(file(), folder_ / "sub" / "model");
  EXPECT_THROW(folder.commit(), Error);
  EXPECT_EQ(read_file(folder_ / "sub" / "model"), "input");
}

TEST_F(ProtectedTest, AFileThatComesToLieWhereAnInputWasIsProtected) {
  ProtectedFiles inputs;
  inputs.add(file());
  fs::rename(file(), folder_ / "moved");
  EXPECT_EQ(refusal(file()), "");  // there is nothing to lose
  EXPECT_NE(refusal(file()), "");
}

TEST_F(ProtectedTest, WhatIsAllowedIsReplacedAndOthersKeepTheirs) {
  ProtectedFiles inputs;
  inputs.add(file());
  {
    ProtectedFiles others;
    others.add(file());
    inputs.allow(file());
    EXPECT_NE(refusal(file()), "");  // others read it
  }
  EXPECT_EQ(refusal(file()), "");
  EXPECT_EQ(read_file(file()), "output");
}

TEST_F(ProtectedTest, LinksStayAndWhatTheyLeadToIsWritten) {
  fs::create_symlink("sub/new", folder_ / "link");  // leads to nothing yet
  EXPECT_EQ(refusal(folder_ / "link"), "");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "sub" / "new"), "output");
  require_writable(folder_ / "link");

  fs::create_symlink("gone/new", folder_ / "dangling");
  const std::string said = refusal(folder_ / "dangling");
  EXPECT_NE(said.find("symbolic link"), std::string::npos) << said;
  EXPECT_NE(said.find("there is no folder"), std::string::npos) << said;
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  EXPECT_NE(refusal(folder_ / "a").find("lead to each other"), std::string::npos);

  // In folders links may lead into what other programs share.
  write_file_atomic(folder_ / "shared", "others'");
  fs::create_symlink("../shared", folder_ / "sub" / "model");
  AtomicFolder folder(folder_ / "sub");
  write_file_atomic(folder.path() / "model", "output");
  EXPECT_THROW(folder.commit(), Error);
  EXPECT_EQ(read_file(folder_ / "shared"), "others'");
  EXPECT_TRUE(fs::is_symlink(folder_ / "sub" / "model"));
}

TEST_F(ProtectedTest, AFolderThatIsMissingOrAFileIsSaidBeforeTheWork) {
  const auto said = [](const fs::path& path) {
    try {
      require_writable(path);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(said(folder_ / "none" / "out").find("there is no folder"), std::string::npos);
  EXPECT_NE(said(file() / "out").find("is not a folder"), std::string::npos);
  EXPECT_NE(said(folder_ / "sub").find("it is a folder"), std::string::npos);
  EXPECT_EQ(said(folder_ / "out"), "");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  if (::geteuid() == 0) return;  // writes everywhere
  ::chmod((folder_ / "sub").c_str(), 0500);
  EXPECT_NE(said(folder_ / "sub" / "out"), "");
  ::chmod((folder_ / "sub").c_str(), 0700);
}

}  // namespace
}  // namespace lumen
