// needs: none. What is written is read back, wherever it had to lie.
#include "base/sealed/spool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/log.h"
#include "tests/base/sealed/own_folder.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

// Several pieces, of more than the writer's buffers.
std::string write_all_of(Spool& spool) {
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const std::string piece(100'000 + i, char('a' + i % 26));
    spool.write(piece.data(), piece.size());
    all += piece;
  }
  spool.pad_to(64);
  all.resize((all.size() + 63) / 64 * 64, '\0');
  return all;
}

class Spooled : public testing::Test {
 protected:
  Spooled() { testing::internal::CaptureStderr(); }
  ~Spooled() override {
    if (!is_read_) (void)testing::internal::GetCapturedStderr();
  }
  std::string said() {
    is_read_ = true;
    return testing::internal::GetCapturedStderr();
  }
  OwnFolder folder_;

 private:
  bool is_read_ = false;
};

TEST_F(Spooled, InTheFolder) {
  SealedFolder files(folder_.path() / "cache");
  std::string all;
  {
    Spool spool(&files, "tokens", "x");
    all = write_all_of(spool);
    EXPECT_TRUE(spool.finish().text() == all);
  }
  EXPECT_TRUE(files.map("tokens", "x").text() == all);
  {
    Spool given_up(&files, "tokens", "y");
    (void)write_all_of(given_up);
  }
  EXPECT_EQ(files.map("tokens", "y").state, SealedContents::State::absent);
  EXPECT_EQ(said(), "");
}

TEST_F(Spooled, InMemory) {
  Spool spool(nullptr, "tokens", "x");
  const std::string all = write_all_of(spool);
  EXPECT_TRUE(spool.finish().text() == all);
}

TEST_F(Spooled, WithoutAFolderInAPrivateFile) {
  overwrite(folder_.path() / "file", "");
  SealedFolder files(folder_.path() / "file/below");
  Spool spool(&files, "tokens", "x");
  const std::string all = write_all_of(spool);
  const SealedContents contents = spool.finish();
  EXPECT_TRUE(contents.text() == all);
  const std::string words = said();
  EXPECT_NE(words.find("made again at every start"), std::string::npos) << words;
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << words;
}

// Neither has any room: what was written until then is not lost.
TEST_F(Spooled, OnFullDisksInMemory) {
  for (const size_t room : {size_t{0}, size_t{65536}, size_t{1} << 20, size_t{2500000}}) {
    SealedFolder files(folder_.path() / std::to_string(room));
    Spool spool(&files, "tokens", "x");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto signal = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{room, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string all = write_all_of(spool);
    const SealedContents contents = spool.finish();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, signal);
    EXPECT_TRUE(contents.text() == all) << room;
    EXPECT_FALSE(files.usable());
    for (const auto& entry : fs::recursive_directory_iterator(files.path()))
      EXPECT_FALSE(entry.path().filename().string().ends_with(".part")) << entry.path();
  }
}

}  // namespace
}  // namespace lumen
