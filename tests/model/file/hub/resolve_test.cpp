// needs: none. Models of the local cache by name, short names, aliases; the error for a model that is missing.
#include "model/file/hub/resolve.h"

#include <cstdlib>

#include "base/error.h"
#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace lumen::model::file {
namespace {

constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};

// Sets variables for one test.
class Environment {
 public:
  Environment() {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      old_.emplace_back(name, value ? value : "");
      unsetenv(name);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : old_) value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }

 private:
  std::vector<std::pair<const char*, std::string>> old_;
};

TEST(HubCache, TheFirstVariableDecides) {
  const Environment environment;
  setenv("HOME", "/h", 1);
  EXPECT_EQ(hub_cache(), "/h/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hub_cache(), "/x/huggingface/hub");
  setenv("HF_HOME", "/f", 1);
  EXPECT_EQ(hub_cache(), "/f/hub");
  setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(hub_cache(), "/old");
  setenv("HF_HUB_CACHE", "/new", 1);
  EXPECT_EQ(hub_cache(), "/new");
}

TEST(HubCache, Snapshots) {
  const Environment environment;
  const TestFolder folder;
  setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  const auto repository = folder / "models--user--repo";
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((repository / path).parent_path());
    write_file_atomic(repository / path, text);
  };
  put("snapshots/aaa/config.json", "{}");
  put("snapshots/aaa/model.safetensors", "x");
  EXPECT_EQ(resolve_hub("user/repo"), repository / "snapshots/aaa");
  put("snapshots/bbb/config.json", "{}");
  put("snapshots/bbb/model.safetensors", "x");
  EXPECT_THROW((void)resolve_hub("user/repo"), Error);  // which of them?
  put("refs/main", "bbb\n");
  EXPECT_EQ(resolve_hub("user/repo"), repository / "snapshots/bbb");
  EXPECT_EQ(resolve_path("hf:user/repo"), repository / "snapshots/bbb");
  EXPECT_EQ(resolve_path("plain/path"), "plain/path");
  put("snapshots/bbb/Model-AB.gguf", "x");
  put("snapshots/bbb/Model-CD-00001-of-00002.gguf", "x");
  put("snapshots/bbb/Model-CD-00002-of-00002.gguf", "x");
  EXPECT_EQ(resolve_hub("user/repo:ab").filename(), "Model-AB.gguf");
  EXPECT_EQ(resolve_hub("user/repo:CD").filename(), "Model-CD-00001-of-00002.gguf");
  EXPECT_THROW((void)resolve_hub("user/repo:model"), Error);
  put("refs/main", "../../../etc");
  EXPECT_THROW((void)resolve_hub("user/repo"), Error);
}

TEST(HubCache, WhatIsNotThereIsSaid) {
  const Environment environment;
  const TestFolder folder;
  setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  try {
    (void)resolve_hub("user/absent");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(folder.path().string()), std::string::npos);
    EXPECT_NE(e.hint().find("`lumen pull user/absent`"), std::string::npos);
  }
  for (const char* name : {"", "user", "a/b/c", "../x", "a/..", "a/b\n"})
    EXPECT_THROW((void)resolve_hub(name), Error) << name;
}

TEST(HubCache, ShortNamesAndAliases) {
  const Environment environment;
  const TestFolder folder;
  setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  const auto put = [&](const std::string& path) {
    std::filesystem::create_directories((folder / path).parent_path());
    write_file_atomic(folder / path, "x");
  };
  put("models--one--Small-GGUF/snapshots/aaa/Small-Q8_0.gguf");
  put("models--one--Small-GGUF/snapshots/aaa/Small-Q4_K_M.gguf");
  put("models--one--Both/snapshots/aaa/m.gguf");
  put("models--two--Both/snapshots/aaa/m.gguf");
  put("own/kept.gguf");
  const auto small = folder / "models--one--Small-GGUF/snapshots/aaa";
  EXPECT_EQ(resolve_path("Small-GGUF"), small / "Small-Q4_K_M.gguf");  // the usual one
  EXPECT_EQ(resolve_path("small-gguf:q8_0"), small / "Small-Q8_0.gguf");
  EXPECT_EQ(resolve_path("one/Small-GGUF:Q8_0"), small / "Small-Q8_0.gguf");
  EXPECT_THROW((void)resolve_path("Small-GGUF:Q5_0"), Error);
  EXPECT_THROW((void)resolve_path("Both"), Error);
  EXPECT_EQ(resolve_path("two/Both"), folder / "models--two--Both/snapshots/aaa/m.gguf");
  EXPECT_EQ(resolve_name("absent"), std::nullopt);
  EXPECT_EQ(resolve_name("../one"), std::nullopt);
  EXPECT_EQ(resolve_name("/one/Small-GGUF"), std::nullopt);

  set_local_names({{{"mine", "hf:one/Small-GGUF:Q8_0"}, {"other", "/some/file.gguf"}}, {folder / "own"}});
  EXPECT_EQ(resolve_path("mine"), small / "Small-Q8_0.gguf");
  EXPECT_EQ(resolve_path("other"), "/some/file.gguf");
  EXPECT_EQ(resolve_path("kept"), folder / "own/kept.gguf");
  EXPECT_EQ(resolve_path("../own/kept"), "../own/kept");
  set_local_names({});
  EXPECT_EQ(resolve_path("mine"), "mine");
}

}  // namespace
}  // namespace lumen::model::file
