// needs: none. What is kept between starts belongs to one user: sealed, in folders and files of that user alone.
#include "base/sealed/sealed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/temporary.h"
#include "tests/base/sealed/own_folder.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

class Kept : public testing::Test {
 protected:
  Kept() : own(folder.path() / "cache" / ("user-" + std::to_string(::geteuid()))) {
    SealedFolder files(cache());
    files.write("kernels", "a", "code of a");
    files.write("kernels", "b", "code of b");
    files.write("plans", "a", "plan of a");
  }
  fs::path cache() const { return folder.path() / "cache"; }
  std::string read(const std::string& kind, const std::string& name) const {
    return SealedFolder(cache()).read(kind, name);
  }
  // What a new start says on stderr.
  std::string said(const fs::path& path) const {
    testing::internal::CaptureStderr();
    SealedFolder files(path);
    EXPECT_FALSE(files.usable());
    EXPECT_FALSE(files.trouble().empty());
    files.write("kernels", "c", "x");  // nothing happens
    EXPECT_EQ(files.read("kernels", "c"), "");
    return testing::internal::GetCapturedStderr();
  }

  OwnFolder folder;
  fs::path own;
};

TEST_F(Kept, ComesBack) {
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_EQ(read("plans", "a"), "plan of a");
  EXPECT_EQ(read("plans", "b"), "");
  SealedFolder(cache()).write("plans", "a", "another");
  EXPECT_EQ(read("plans", "a"), "another");
  EXPECT_TRUE(SealedFolder({}).trouble().empty());
  EXPECT_FALSE(SealedFolder({}).usable());
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
                                  whole.substr(0, 63),
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
    SealedFolder(cache()).write("kernels", "a", "again");
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
  SealedFolder(cache()).write("kernels", "a", "again");
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
  EXPECT_NE(words.find("made again at every start"), std::string::npos) << words;
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
  EXPECT_NE(said(folder.path() / "file/below").find("made again at every start"), std::string::npos);
  EXPECT_NE(said("/proc" / folder.path().filename()).find("made again at every start"), std::string::npos);
}

// A full disk, or one that is only read: what is there is read on.
TEST_F(Kept, WhatCannotBeWrittenIsStillRead) {
  testing::internal::CaptureStderr();
  {
    SealedFolder files(cache());
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
  EXPECT_NE(words.find("made again at every start"), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << "one line is enough: " << words;
  for (const auto& entry : fs::recursive_directory_iterator(cache()))
    EXPECT_FALSE(entry.path().filename().string().ends_with(".part")) << entry.path();
}

TEST_F(Kept, ManyAtOnceHaveOneSecret) {
  for (int round = 0; round < 20; ++round) {
    const fs::path fresh = folder.path() / std::to_string(round);
    if (round % 2 == 1) {  // those who find it open to others replace the secret once, not each other's
      SealedFolder(fresh).write("kernels", "x", "code");
      for (const auto& user : fs::directory_iterator(fresh)) ASSERT_EQ(::chmod(user.path().c_str(), 0777), 0);
    }
    std::atomic<int> waiting{8};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        SealedFolder(fresh).write("kernels", std::to_string(i), "code");
      });
    }
    for (std::thread& t : threads) t.join();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(SealedFolder(fresh).read("kernels", std::to_string(i)), "code") << round;
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

// Whoever writes holds a lock, which goes with the process.
TEST_F(Kept, UnfinishedFilesOfProcessesThatAreGoneAreRemoved) {
  overwrite(own / "kernels/.a.1.0.part", "half");
  overwrite(own / "kernels/.b.1.0.part", "half");
  const int writer = ::open((own / "kernels/.b.1.0.part").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_FALSE(fs::exists(own / "kernels/.a.1.0.part"));
  EXPECT_TRUE(fs::exists(own / "kernels/.b.1.0.part")) << "somebody is writing it";
  ::close(writer);
  SealedFolder files(cache());
  const auto half = files.create("kernels", "half");
  half->write("half", 4);
  EXPECT_EQ(read("kernels", "a"), "code of a");
  EXPECT_NO_THROW(half->finish()) << "it was taken for a leaving";
  EXPECT_EQ(read("kernels", "half"), "half");
}

// A signal that ends the program removes what is being written. In a process of its own: none goes on after that.
TEST_F(Kept, SignalsRemoveWhatIsUnfinished) {
  SealedFolder files(cache());
  const auto half = files.create("kernels", "half");
  const auto parts = [&] {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(own / "kernels")) count += entry.path().extension() == ".part";
    return count;
  };
  EXPECT_EQ(parts(), 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    remove_temporaries();
    ::_exit(9);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << status;
  EXPECT_EQ(parts(), 0);
}

TEST_F(Kept, WhatIsRefusedIsSaidOnce) {
  for (const char* name : {"a", "b"})
    overwrite(own / "kernels" / name,
              "damaged by somebody, and long enough for a seal, "
              "which there is none of");
  testing::internal::CaptureStderr();
  SealedFolder files(cache());
  EXPECT_EQ(files.read("kernels", "a"), "");
  EXPECT_EQ(files.read("kernels", "b"), "");
  const std::string words = testing::internal::GetCapturedStderr();
  EXPECT_NE(words.find((own / "kernels/a").string()), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << words;
}

// Contents in pieces, mapped again; each byte of the file counts, and the reader says why.
TEST_F(Kept, MapsWhatWasWrittenInPieces) {
  std::string all;
  SealedFolder files(cache());
  {
    const auto file = files.create("tokens", "t");
    for (int i = 0; i < 300; ++i) {
      const std::string piece(i * 31, char('a' + i % 26));
      file->write(piece.data(), piece.size());
      all += piece;
    }
    std::vector<uint8_t> back(1000);
    ASSERT_TRUE(file->read_back(all.size() - 2000, back));
    EXPECT_EQ(std::string(back.begin(), back.end()), all.substr(all.size() - 2000, 1000));
    file->finish();
    EXPECT_EQ(file->map().text(), all);
  }
  EXPECT_TRUE(files.map("tokens", "t").text() == all);
  EXPECT_EQ(files.map("tokens", "u").state, SealedContents::State::absent);
  const std::string whole = read_file(own / "tokens/t");
  for (size_t at = 0; at < whole.size(); at += at + 64 < whole.size() ? 9973 : 1) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    overwrite(own / "tokens/t", changed);
    const SealedContents found = files.map("tokens", "t");
    EXPECT_EQ(found.state, SealedContents::State::refused) << at;
    EXPECT_NE(found.why, "");
    EXPECT_TRUE(found.bytes.empty());
  }
}

// What was not used for the longest goes first, whatever its kind; the newest stays however large it is.
TEST_F(Kept, TheOldestLeavesFirst) {
  clear_sealed(cache());
  SealedFolderOptions o;
  o.most_bytes = 1000;
  const auto put = [&](const std::string& kind, const std::string& name, size_t size) {
    SealedFolder(cache(), o).write(kind, name, std::string(size, 'x'));
  };
  const auto age = [&](const std::string& file, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (own / file).c_str(), times, 0), 0);
  };
  put("kernels", "a", 200);
  put("plans", "b", 200);
  put("kernels", "c", 200);
  age("kernels/a", 3000);
  age("plans/b", 1000);
  age("kernels/c", 2000);
  put("tokens", "d", 200);  // 4 x 264 bytes
  EXPECT_FALSE(fs::exists(own / "plans/b"));
  EXPECT_TRUE(fs::exists(own / "kernels/a") && fs::exists(own / "kernels/c") && fs::exists(own / "tokens/d"));
  EXPECT_NE(SealedFolder(cache(), o).read("kernels", "c"), "");  // now a is the one that was not used for the longest
  put("tokens", "e", 200);
  EXPECT_FALSE(fs::exists(own / "kernels/a"));
  EXPECT_TRUE(fs::exists(own / "kernels/c") && fs::exists(own / "tokens/d") && fs::exists(own / "tokens/e"));
  put("tokens", "huge", 5000);
  EXPECT_TRUE(fs::exists(own / "tokens/huge"));
  EXPECT_FALSE(fs::exists(own / "kernels/c") || fs::exists(own / "tokens/d") || fs::exists(own / "tokens/e"));
  EXPECT_TRUE(fs::exists(own / "key"));
  // One process that writes much stays within the limit, too.
  SealedFolder files(cache(), o);
  for (int i = 0; i < 20; ++i) files.write("plans", std::to_string(i), std::string(200, 'x'));
  int64_t bytes = 0;
  for (const SealedKind& kind : list_sealed(cache())) bytes += kind.bytes;
  EXPECT_LE(bytes, 1000);
  EXPECT_GT(bytes, 500);
}

TEST_F(Kept, IsListedAndCleared) {
  const std::vector<SealedKind> kinds = list_sealed(cache());
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].name, "kernels");
  EXPECT_EQ(kinds[0].files, 2);
  EXPECT_EQ(kinds[0].bytes, 2 * (9 + 64));
  EXPECT_EQ(kinds[1].name, "plans");
  EXPECT_LT(std::chrono::system_clock::now() - kinds[1].oldest, std::chrono::minutes(1));
  EXPECT_EQ(clear_sealed(cache(), "plans"), 9 + 64);
  EXPECT_EQ(read("plans", "a"), "");
  EXPECT_EQ(read("kernels", "a"), "code of a");
  clear_sealed(cache());
  EXPECT_TRUE(list_sealed(cache()).empty());
  SealedFolder(cache()).write("kernels", "a", "again");
  EXPECT_EQ(read("kernels", "a"), "again");
  EXPECT_TRUE(list_sealed(folder.path() / "none").empty());
  // What a link leads to is not this user's cache.
  fs::rename(own, folder.path() / "elsewhere");
  fs::create_directory_symlink(folder.path() / "elsewhere", own);
  EXPECT_TRUE(list_sealed(cache()).empty());
  EXPECT_EQ(clear_sealed(cache()), 0);
  EXPECT_TRUE(fs::exists(folder.path() / "elsewhere/kernels/a"));
}

}  // namespace
}  // namespace lumen
