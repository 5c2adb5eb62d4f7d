// needs: none. The files of running servers: written, shown, and removed when their process has ended.
#include "cli/servers/servers.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class Servers : public testing::Test {
 protected:
  Servers() {
    std::string name = (fs::temp_directory_path() / "lumen-servers-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  }
  ~Servers() override {
    before_ ? ::setenv("XDG_RUNTIME_DIR", before_->c_str(), 1) : ::unsetenv("XDG_RUNTIME_DIR");
    fs::remove_all(folder_);
  }
  fs::path folder_;
  std::optional<std::string> before_;
};

TEST_F(Servers, AreShownWhileTheyRun) {
  EXPECT_TRUE(contains(lumen({"ps"}).out, "no server"));
  {
    const ServerRecord record({0, 0, "127.0.0.1", 1, false, {"small", "large"}});
    const std::vector<ServerState> all = running_servers();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].process, ::getpid());
    EXPECT_EQ(all[0].port, 1);
    EXPECT_EQ(all[0].models, (std::vector<std::string>{"small", "large"}));
    EXPECT_GT(memory_of_process(all[0].process), 0U);
    EXPECT_GE(age_of_process(all[0]), 0);
    const Outcome shown = lumen({"ps"});
    EXPECT_TRUE(contains(shown.out, "127.0.0.1:1 ") && contains(shown.out, "small, large") &&
                contains(shown.out, "unknown"))
        << shown.out << shown.error;
    EXPECT_TRUE(contains(lumen({"ps", "--json"}).out, "\"port\": 1"));
  }
  EXPECT_TRUE(running_servers().empty());
}

TEST_F(Servers, FilesOfEndedProcessesAndOtherTextsAreRemoved) {
  {
    const ServerRecord record({0, 0, "h", 1, false, {}});
  }  // creates the folder
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(servers_folder() / name) << text;
  };
  put("serve-1-1.json",
      fmt::format(R"({{"process": {}, "started": 1, "host": "h", "port": 1, "tls": false, "models": []}})",
                  ::getpid()));
  put("serve-2-1.json", R"({"process": 999999999, "started": 1, "host": "h", "port": 1, "tls": false, "models": []})");
  put("serve-3-1.json", "no object");
  put("other", "stays");
  EXPECT_TRUE(running_servers().empty());
  EXPECT_TRUE(fs::exists(servers_folder() / "other"));
  for (const char* name : {"serve-1-1.json", "serve-2-1.json", "serve-3-1.json"})
    EXPECT_FALSE(fs::exists(servers_folder() / name)) << name;
}

TEST_F(Servers, AFolderThatOthersWriteIsNotUsed) {
  fs::create_directory(servers_folder());
  fs::permissions(servers_folder(), fs::perms::all);
  EXPECT_THROW((void)running_servers(), Error);
  testing::internal::CaptureStderr();
  const ServerRecord record({0, 0, "h", 1, false, {}});
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "lumen ps"));
  EXPECT_TRUE(fs::is_empty(servers_folder()));
}

}  // namespace
}  // namespace lumen::cli
