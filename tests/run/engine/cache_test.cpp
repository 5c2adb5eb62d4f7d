// Needs: cpu. The kernel cache: what is kept is not compiled again, damage is noticed, processes may share a folder.
#include "run/engine/cache/cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/file/file.h"
#include "tests/run/damage.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

std::filesystem::path own_folder(const std::filesystem::path& folder) {
  return folder / ("user-" + std::to_string(::geteuid()));
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(own_folder(folder) / "kernels"))
    files.push_back(entry.path());
  return files;
}

struct Outcome {
  CompileReport report;
  std::vector<uint8_t> bytes;
};

Outcome run_with(const std::string& folder) {
  const graph::Graph g = small_network();
  Engine::Options o = options(folder);
  o.tries = false;  // kernels of the self-test would lie among those of the program
  Engine engine(o);
  const auto program = run_once(engine, g, random_inputs(g, 8));
  return {program->report(), bytes_of(program->result("logits"))};
}

TEST(Cache, ASecondEngineCompilesNothing) {
  const TemporaryFolder folder;
  const Outcome first = run_with(folder.path());
  EXPECT_EQ(first.report.compiled, first.report.kernels);
  EXPECT_EQ(static_cast<int>(files_in(folder.path()).size()), first.report.kernels);
  const Outcome second = run_with(folder.path());
  EXPECT_EQ(second.report.compiled, 0);
  EXPECT_EQ(second.report.cached, second.report.kernels);
  EXPECT_EQ(first.bytes, second.bytes);
}

TEST(Cache, TheSameEngineCompilesOnceWithoutAFolder) {
  const graph::Graph g = small_network();
  Engine engine(options("off"));
  EXPECT_GT(engine.compile(g, {})->report().compiled, 0);
  EXPECT_EQ(engine.compile(g, {})->report().compiled, 0);
  EXPECT_GT(engine.totals().cached, 0);
}

TEST(Cache, DamagedFilesAreCompiledAgain) {
  const TemporaryFolder folder;
  const Outcome first = run_with(folder.path());
  const auto files = files_in(folder.path());
  ASSERT_GE(files.size(), 3U);
  const std::string one = read_file(files[0]);
  std::string flipped = read_file(files[1]);
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  std::ofstream(files[0], std::ios::binary).write(one.data(), static_cast<std::streamsize>(one.size() - 5));
  std::ofstream(files[1], std::ios::binary).write(flipped.data(), static_cast<std::streamsize>(flipped.size()));
  std::ofstream(files[2], std::ios::binary) << "";
  const Outcome second = run_with(folder.path());
  EXPECT_EQ(second.report.compiled, 3);
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_EQ(run_with(folder.path()).report.compiled, 0);  // they were mended
}

TEST(Cache, EveryPartOfAFileIsSealed) {
  const TemporaryFolder folder;
  const Outcome first = run_with(folder.path());
  const std::filesystem::path file = files_in(folder.path())[0];
  for (const auto& [what, content] : damaged_forms(read_file(file))) {
    put_in_place(file, content);
    const Outcome again = run_with(folder.path());
    EXPECT_EQ(again.report.compiled, 1) << what;
    EXPECT_EQ(again.bytes, first.bytes) << what;
  }
}

TEST(Cache, FilesUnderAnotherNameAreNotTaken) {
  const TemporaryFolder folder;
  run_with(folder.path());
  const auto files = files_in(folder.path());
  ASSERT_GE(files.size(), 2U);
  std::filesystem::copy_file(files[0], files[1], std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(run_with(folder.path()).report.compiled, 1);
}

// The attack: an object with other code, in a file that is whole by any checksum that has no secret.
TEST(Cache, ForgedCodeIsNotExecuted) {
  const TemporaryFolder mine, theirs;
  const Outcome first = run_with(mine.path());
  run_with(theirs.path());  // another user's Lumen, another secret: the very same kernels, well made
  const auto files = files_in(mine.path());
  for (const auto& file : files)
    std::filesystem::copy_file(own_folder(theirs.path()) / "kernels" / file.filename(), file,
                               std::filesystem::copy_options::overwrite_existing);
  const Outcome second = run_with(mine.path());
  EXPECT_EQ(second.report.compiled, second.report.kernels);
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_EQ(run_with(mine.path()).report.compiled, 0);
}

TEST(Cache, FilesOthersCanWriteAreNotExecuted) {
  for (const auto who : {std::filesystem::perms::others_write, std::filesystem::perms::group_write}) {
    const TemporaryFolder folder;
    run_with(folder.path());
    std::filesystem::permissions(files_in(folder.path())[0], who, std::filesystem::perm_options::add);
    EXPECT_EQ(run_with(folder.path()).report.compiled, 1);
    EXPECT_EQ(run_with(folder.path()).report.compiled, 0) << "the file was replaced";
  }
}

TEST(Cache, LinksAreNotFollowed) {
  const TemporaryFolder folder;
  run_with(folder.path());
  const auto file = files_in(folder.path())[0];
  std::filesystem::rename(file, folder.path() / "elsewhere");
  std::filesystem::create_symlink(folder.path() / "elsewhere", file);
  EXPECT_EQ(run_with(folder.path()).report.compiled, 1);
  EXPECT_FALSE(std::filesystem::is_symlink(file));
}

TEST(Cache, AFolderThatCannotBeWrittenIsNoError) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "file", "");
  testing::internal::CaptureStderr();
  const Outcome outcome = run_with(folder.path() / "file" / "below");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.report.compiled, outcome.report.kernels);
  EXPECT_NE(said.find("made again at every start"), std::string::npos) << said;
  EXPECT_EQ(said.find("warning"), said.rfind("warning")) << "one warning is enough: " << said;
}

TEST(Cache, TwoProcessesAtOnce) {
  const TemporaryFolder folder;
  // Fresh processes: this one runs itself with the filter of the helper below, whichever part of the tests it runs.
  const std::string command =
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX -u GTEST_SHARD_STATUS_FILE LUMEN_CACHE='" +
      folder.path().string() + "' '" + std::filesystem::read_symlink("/proc/self/exe").string() +
      "' --gtest_filter=CacheHelper.* --gtest_also_run_disabled_tests >/dev/null 2>&1";
  const int status =
      std::system(("(" + command + ") & first=$!; " + command + "; second=$?; wait $first && exit $second").c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(run_with(folder.path()).report.compiled, 0);
}

// Runs the network with the folder of the environment. Only started by the test above.
TEST(CacheHelper, DISABLED_RunsTheNetwork) {
  const graph::Graph g = small_network();
  Engine engine(options(""));
  const auto inputs = random_inputs(g, 8);
  expect_near(floats_of(run_once(engine, g, inputs)->result("logits")), graph::eval(g, inputs)[0].values, 1e-4);
}

TEST(Cache, TheFolderFollowsTheEnvironment) {
  const auto with = [](const char* lumen, const char* xdg, const char* home) {
    const auto set = [](const char* name, const char* value) {
      if (value) {
        ::setenv(name, value, 1);
      } else {
        ::unsetenv(name);
      }
    };
    const char* names[] = {"LUMEN_CACHE", "XDG_CACHE_HOME", "HOME"};
    const char* values[] = {lumen, xdg, home};
    std::vector<std::optional<std::string>> old;
    for (int i = 0; i < 3; ++i) {
      const char* value = std::getenv(names[i]);
      old.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      set(names[i], values[i]);
    }
    const std::string folder = cache_folder("");
    for (int i = 0; i < 3; ++i)
      set(names[i], old[static_cast<size_t>(i)] ? old[static_cast<size_t>(i)]->c_str() : nullptr);
    return folder;
  };
  EXPECT_EQ(with("/a", "/b", "/c"), "/a");
  EXPECT_EQ(with(nullptr, "/b", "/c"), "/b/lumen");
  EXPECT_EQ(with(nullptr, "relative", "/c"), "/c/.cache/lumen");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "");
  EXPECT_EQ(with("off", "/b", "/c"), "");
  EXPECT_EQ(cache_folder("off"), "");
  EXPECT_EQ(cache_folder("/d"), "/d");
}

TEST(Cache, NoPlaceIsOneWarning) {
  std::vector<std::pair<const char*, std::optional<std::string>>> before;
  for (const char* name : {"LUMEN_CACHE", "XDG_CACHE_HOME", "HOME"}) {
    const char* value = std::getenv(name);
    before.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
    ::unsetenv(name);
  }
  testing::internal::CaptureStderr();
  {
    Engine nowhere(options(""));
    Engine off(options("off"));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  for (const auto& [name, value] : before)
    if (value) ::setenv(name, value->c_str(), 1);
  EXPECT_NE(said.find("neither HOME nor XDG_CACHE_HOME"), std::string::npos) << said;
  EXPECT_EQ(said.find("not kept"), said.rfind("not kept")) << said;
}

}  // namespace
}  // namespace lumen::run
