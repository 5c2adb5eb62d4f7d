// needs: cpu. `lumen cache`: what is shown, what is cleared, what is kept within a limit, and what is said where
// nothing can be kept.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sealed/sealed.h"
#include "run/engine/cache/user_cache.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class CacheCommand : public testing::Test {
 protected:
  CacheCommand() {
    std::string name = (fs::temp_directory_path() / "lumen-cache-command-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    SealedFolder files(cache());
    files.write("kernels", "a", "code");
    files.write("tokens", "b", std::string(1000, 'x'));
  }
  ~CacheCommand() override {
    run::set_cache_limit(-1);
    fs::remove_all(folder_);
  }
  std::string cache() const { return (folder_ / "cache").string(); }
  fs::path own() const { return folder_ / "cache" / ("user-" + std::to_string(::geteuid())); }
  void save(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(CacheCommand, ShowsWhatIsKept) {
  const Outcome text = lumen({"cache", "--cache", cache(), "--cache-limit", "3G"});
  ASSERT_EQ(text.code, 0) << text.error;
  for (const std::string& part :
       {own().string(), std::string("kernels"), std::string("tokens"), std::string("1064"), std::string("at most 3.0")})
    EXPECT_TRUE(contains(text.out, part)) << part << "\n" << text.out;
  const Outcome o = lumen({"cache", "--json", "--cache", cache()});
  ASSERT_EQ(o.code, 0) << o.error;
  const auto all = nlohmann::json::parse(o.out);
  EXPECT_EQ(all["path"], own().string());
  EXPECT_EQ(all["limit"], int64_t{3} << 30) << "of this process, since the flag was given";
  EXPECT_EQ(all["state"], "ready");
  EXPECT_EQ(all["files"], 2);
  EXPECT_EQ(all["bytes"], 4 + 1000 + 2 * 64);
  ASSERT_EQ(all["kinds"].size(), 2U);
  EXPECT_EQ(all["kinds"][1]["kind"], "tokens");
  EXPECT_EQ(all["kinds"][1]["bytes"], 1064);
  EXPECT_TRUE(contains(all["kinds"][1]["oldest"].get<std::string>(), "T"));
}

TEST_F(CacheCommand, Clears) {
  const Outcome unknown = lumen({"cache", "clear", "kernel", "--cache", cache()});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_TRUE(contains(unknown.error, "kernels, tokens")) << unknown.error;
  const Outcome one = lumen({"cache", "clear", "tokens", "--json", "--cache", cache()});
  ASSERT_EQ(one.code, 0) << one.error;
  EXPECT_EQ(nlohmann::json::parse(one.out)["removed_bytes"], 1064);
  EXPECT_EQ(SealedFolder(cache()).read("kernels", "a"), "code");
  EXPECT_EQ(lumen({"cache", "clear", "--cache", cache()}).code, 0);
  EXPECT_TRUE(list_sealed(cache()).empty());
  EXPECT_TRUE(fs::exists(own() / "key"));
  EXPECT_EQ(lumen({"cache", "clear", "--cache", cache()}).code, 0) << "there is nothing, which is no error";
}

TEST_F(CacheCommand, WithoutACache) {
  const Outcome none = lumen({"cache", "--cache", path("none")});
  EXPECT_EQ(none.code, 0) << none.error;
  EXPECT_TRUE(contains(none.out, "not made yet")) << none.out;
  EXPECT_FALSE(fs::exists(path("none")));
  EXPECT_EQ(lumen({"cache", "--cache", "off"}).code, 1);
  save("file", "");
  const Outcome file = lumen({"cache", "--cache", path("file")});
  EXPECT_EQ(file.code, 0) << file.error;
  EXPECT_TRUE(contains(file.out, "cannot be used")) << file.out;
  EXPECT_EQ(lumen({"cache", "--cache-limit", "much", "--cache", cache()}).code, 2);
}

// The commands that read data: a cache that cannot be used is one warning, and nothing else is different.
TEST_F(CacheCommand, AnUnusableCacheEndsNothing) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"text\": \"row " + std::to_string(i) + " of some text to read\"}\n";
  save("rows.jsonl", rows);
  save("file", "");
  const Outcome model = lumen({"train", "--shape", "tiny", "--tokenizer", "bytes:300", "-c", "64", "--steps", "1", "-t",
                               "1", "--eval-every", "0", "-o", path("m"), "-q", "--cache", path("kernels")});
  ASSERT_EQ(model.code, 0) << model.error;
  const auto stats = [&](const std::string& place) {
    return lumen({"data", "stats", "-m", path("m/model.gguf"), "--data", path("rows.jsonl"), "--cache", place});
  };
  const Outcome good = stats(cache());
  ASSERT_EQ(good.code, 0) << good.error;
  for (const std::string& place : {path("file"), path("file/below"), std::string("/proc/none/x")}) {
    const Outcome o = stats(place);
    EXPECT_EQ(o.code, 0) << place << o.error;
    EXPECT_EQ(o.out, good.out) << place;
    EXPECT_TRUE(contains(o.error, "made again at every start")) << place << o.error;
    EXPECT_EQ(o.error.find("warning"), o.error.rfind("warning")) << o.error;
  }
}

// Tokens that somebody changed, with all that can be computed without the secret set right, are told and not used.
TEST_F(CacheCommand, PoisonedTokensAreNotUsed) {
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += "{\"messages\": [{\"role\": \"user\", \"content\": \"" + std::to_string(i) +
            "?\"}, {\"role\": \"assistant\", \"content\": \"the answer to it\"}]}\n";
  save("rows.jsonl", rows);
  const auto train = [&](const std::string& out) {
    return lumen(
        {"train", "--shape", "tiny",    "--tokenizer", "bytes:300", "--data", path("rows.jsonl"), "-c", "64",
         "-b",    "2",       "--steps", "2",           "-t",        "1",      "--eval-every",     "0",  "--validation",
         "0.25",  "-o",      path(out), "--cache",     cache()});
  };
  const auto weights = [&](const std::string& out) {
    std::ifstream in(path(out + "/model.gguf"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  fs::remove(own() / "tokens/b");
  const Outcome first = train("one");
  ASSERT_EQ(first.code, 0) << first.error;
  ASSERT_FALSE(fs::is_empty(own() / "tokens"));
  for (const auto& entry : fs::directory_iterator(own() / "tokens")) {
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    for (int i = 0; i < 50; ++i) file.write("\5\0\0\200", 4);
  }
  const Outcome second = train("two");
  ASSERT_EQ(second.code, 0) << second.error;
  EXPECT_TRUE(contains(second.error, "the data are tokenized again")) << second.error;
  EXPECT_EQ(weights("one"), weights("two"));
}

}  // namespace
}  // namespace lumen::cli
