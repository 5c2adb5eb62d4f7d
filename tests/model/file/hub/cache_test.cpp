// needs: none. What the cache holds, and which commit a revision selects.
#include "model/file/hub/cache.h"

#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

class HubCacheFolder : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((folder_ / path).parent_path());
    write_file_atomic(folder_ / path, text);
  }
  // A file of a snapshot as the hub's own package makes it: a relative link to a blob.
  void link(const std::string& snapshot, const std::string& file, const std::string& blob, const std::string& text) {
    put("models--user--repo/blobs/" + blob, text);
    const fs::path at = folder_ / "models--user--repo/snapshots" / snapshot / file;
    fs::create_directories(at.parent_path());
    fs::create_symlink("../../blobs/" + blob, at);
  }
  TestFolder folder_;
};

TEST_F(HubCacheFolder, RevisionsAndCommits) {
  const std::string one(40, 'a'), two = std::string(39, 'b') + "1", three = std::string(39, 'b') + "2";
  for (const std::string& commit : {one, two, three}) put("r/snapshots/" + commit + "/f", "");
  put("r/refs/v1", two);
  put("r/refs/gone", std::string(40, 'c'));
  const fs::path repository = folder_ / "r";
  EXPECT_EQ(cached_commit(repository, "v1"), two);
  EXPECT_EQ(cached_commit(repository, "main"), "");  // none of three
  EXPECT_EQ(cached_commit(repository, one), one);
  EXPECT_EQ(cached_commit(repository, "aaaaaaa"), one);
  EXPECT_EQ(cached_commit(repository, "aaaaaa"), "");    // too short
  EXPECT_EQ(cached_commit(repository, "bbbbbbbb"), "");  // two of them
  EXPECT_EQ(cached_commit(repository, "gone"), "");
}

TEST_F(HubCacheFolder, Models) {
  const std::string commit(40, 'a'), old(40, 'b');
  link(commit, "m-Q8_0.gguf", "e1", "12345");
  link(commit, "m-Q4_0-00001-of-00002.gguf", "e2", "123");
  link(commit, "config.json", "e3", "{}");
  link(commit, "model.safetensors", "e4", "1234567");
  link(old, "m-Q8_0.gguf", "e5", "1");
  fs::create_symlink("../../blobs/absent", folder_ / "models--user--repo/snapshots" / commit / "m-Q6_K.gguf");
  put("models--user--repo/refs/main", commit);
  put("models--bad/snapshots/x/m.gguf", "");
  put("datasets--user--data/snapshots/x/m.gguf", "");
  std::vector<std::string> lines;
  for (const CachedModel& model : cached_models(folder_.path()))
    lines.push_back(fmt::format("{} {} {} {}", model.name.text(), model.type, model.bytes, model.is_whole));
  EXPECT_EQ(lines,
            (std::vector<std::string>{"user/repo:Q4_0 Q4_0 3 false", "user/repo:Q8_0 Q8_0 5 true",
                                      "user/repo safetensors 9 true", "user/repo:Q8_0@bbbbbbbbbbbb Q8_0 1 true"}));
}

}  // namespace
}  // namespace lumen::model::file
