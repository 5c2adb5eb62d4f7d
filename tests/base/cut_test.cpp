// base/file: files that are cut while they are mapped.
#include "base/file/cut.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/leave.h"

namespace lumen {
namespace {

class CutFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-cut-test-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    told(Look::size);  // a test that failed leaves nothing for the next
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path whole(const std::string& name, size_t bytes = 1 << 20) const {
    write_file_atomic(folder_ / name, std::string(bytes, 'x'));
    return folder_ / name;
  }
  // What require_whole_files() throws; empty: nothing.
  static std::string told(Look look) {
    return text_of([&] { require_whole_files(look); });
  }
  static std::string text_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::user);
      EXPECT_FALSE(error.hint().empty());
      return error.what();
    }
    return {};
  }
  static int64_t sum(const MappedFile& map) {
    int64_t all = 0;
    for (const std::byte b : map.bytes()) all += int64_t(b);
    return all;
  }
  std::filesystem::path folder_;
};

TEST_F(CutFiles, ReadAsZerosAndAreNamed) {
  const std::filesystem::path path = whole("model");
  {
    const MappedFile map(path);
    EXPECT_EQ(told(Look::size), "");
    EXPECT_EQ(sum(map), int64_t{'x'} << 20);
    std::filesystem::resize_file(path, 8192);
    EXPECT_EQ(told(Look::touched), "");
    EXPECT_EQ(sum(map), int64_t{'x'} * 8192);
    for (const Look look : {Look::touched, Look::size})
      EXPECT_EQ(told(look), fmt::format("'{}' was cut while it was read", path.string()));
    EXPECT_THROW(require_untouched_pages(), Error);
  }
  EXPECT_EQ(told(Look::size), "") << "it was told, and its map is gone";
}

// The rest of a page reads as zeros without a signal.
TEST_F(CutFiles, AreNoticedWhereNoPageIsGone) {
  const std::filesystem::path path = whole("model", 5000);
  const MappedFile map(path);
  std::filesystem::resize_file(path, 4999);
  EXPECT_EQ(sum(map), int64_t{'x'} * 4999);
  EXPECT_EQ(told(Look::touched), "");
  EXPECT_NE(told(Look::size), "");
}

TEST_F(CutFiles, AreToldOnceTheirMapIsGone) {
  const std::filesystem::path path = whole("model");
  {
    const MappedFile map(path);
    std::filesystem::resize_file(path, 100);
    EXPECT_EQ(sum(map), int64_t{'x'} * 100);
  }
  EXPECT_NE(told(Look::touched), "");
  EXPECT_EQ(told(Look::touched), "");
}

TEST_F(CutFiles, OthersOfTheirNameAreNone) {
  const std::filesystem::path path = whole("model");
  const MappedFile map(path);
  write_file_atomic(path, "another");
  EXPECT_EQ(told(Look::size), "");
  std::filesystem::remove(path);
  EXPECT_EQ(told(Look::size), "");
  EXPECT_EQ(sum(map), int64_t{'x'} << 20);
}

TEST_F(CutFiles, NothingIsWrittenOfThem) {
  const std::filesystem::path path = whole("model"), out = folder_ / "out";
  const MappedFile map(path);
  for (const bool at_once : {true, false}) {
    AtomicFile file(out);
    if (!at_once) std::filesystem::resize_file(path, 1 << 19);
    const std::string text = text_of([&] {
      if (at_once) {
        file.write("small");  // zeros that were computed from
        std::filesystem::resize_file(path, 4096);
        EXPECT_EQ(sum(map), int64_t{'x'} * 4096);
      } else {
        file.write(map.bytes().data(), map.bytes().size());  // pages that the system itself would read
      }
      file.commit();
    });
    EXPECT_NE(text.find("'" + path.string() + "' was cut"), std::string::npos) << text;
  }
  EXPECT_FALSE(std::filesystem::exists(out));
  AtomicFolder folder(folder_ / "folder");
  EXPECT_THROW(folder.commit(), Error);
}

TEST_F(CutFiles, AreLeftToTheirWatch) {
  const std::filesystem::path one = whole("one"), two = whole("two");
  const MappedFile first(one);
  FileWatch of_first;
  of_first.take_all();
  const MappedFile second(two);
  std::optional<FileWatch> of_second;
  of_second.emplace();
  of_second->take_all();
  std::filesystem::resize_file(one, 0);
  EXPECT_EQ(sum(first), 0);
  require_untouched_pages();
  EXPECT_EQ(told(Look::size), "");
  EXPECT_NE(text_of([&] { of_first.require_whole(Look::touched); }).find("one"), std::string::npos);
  of_second->require_whole(Look::size);
  of_second.reset();
  std::filesystem::resize_file(two, 0);
  EXPECT_NE(told(Look::size).find("two"), std::string::npos) << "a file without a watch";
}

// As many maps as come and go: none takes another's place in the table.
TEST_F(CutFiles, AmongManyMaps) {
  std::vector<std::unique_ptr<MappedFile>> maps;
  for (int i = 0; i < 50; ++i) {
    maps.push_back(std::make_unique<MappedFile>(whole(std::to_string(i), 4096)));
    if (i % 3 == 0) maps[i / 2] = nullptr;
  }
  EXPECT_EQ(told(Look::size), "");
  std::filesystem::resize_file(folder_ / "47", 0);
  EXPECT_EQ(sum(*maps[47]), 0);
  EXPECT_EQ(told(Look::touched), fmt::format("'{}' was cut while it was read", (folder_ / "47").string()));
}

TEST_F(CutFiles, PagesAskedForInAdvance) {
  const std::filesystem::path path = whole("model");
  const MappedFile map(path);
  std::filesystem::resize_file(path, 4096);
  bring_from_file({reinterpret_cast<const uint8_t*>(map.bytes().data()), map.bytes().size()});
  EXPECT_EQ(sum(map), int64_t{'x'} * 4096);
  leave_to_file({reinterpret_cast<const uint8_t*>(map.bytes().data()), map.bytes().size()});
  EXPECT_EQ(sum(map), int64_t{'x'} * 4096);
  EXPECT_NE(told(Look::size), "");
}

// An access that is no map's ends the program as before.
TEST_F(CutFiles, OtherBusErrorsEndTheProgram) {
  const MappedFile map(whole("model"));
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::raise(SIGBUS);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
}

}  // namespace
}  // namespace lumen
