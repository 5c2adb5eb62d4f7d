// needs: none. Names of the hub's models: their parts, and the strings that are refused.
#include "model/file/hub/name.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::model::file {
namespace {

TEST(HubName, Parts) {
  HubName name = parse_hub_name("hf:user/repo");
  EXPECT_EQ(name.repository(), "user/repo");
  EXPECT_EQ(name.folder(), "models--user--repo");
  EXPECT_EQ(name.revision, "main");
  EXPECT_EQ(name.part + name.file, "");
  name = parse_hub_name("user/repo:Q4_K_M@refs/pr/1");
  EXPECT_EQ(name.part, "Q4_K_M");
  EXPECT_EQ(name.revision, "refs/pr/1");
  EXPECT_EQ(name.text(), "user/repo:Q4_K_M@refs/pr/1");
  name = parse_hub_name("user/repo/sub folder/m-Q8_0.gguf@v1.0");
  EXPECT_EQ(name.file, "sub folder/m-Q8_0.gguf");
  EXPECT_EQ(name.text(), "user/repo/sub folder/m-Q8_0.gguf@v1.0");
}

TEST(HubName, Refused) {
  for (const char* text :
       {"",         "hf:",           "repo",        "/repo",         "user/",    "../repo", "user/..", "user/.",
        "a/b/c",    "a/b/../c.gguf", "a/b//c.gguf", "a/b/c.gguf:Q8", "a/b:../c", "a/b:x/y", "a/b@",    "a/b@../x",
        "a/b@x//y", "a/b@/x",        "a b/c",       "a/b\n",         "a/b?x=1",  "a/b%2f"})
    EXPECT_THROW((void)parse_hub_name(text), Error) << text;
}

TEST(HubName, PathsInARepository) {
  for (const char* good : {"a", "a/b.json", ".gitattributes", "a..b", "1_Pooling/config.json"})
    EXPECT_TRUE(is_repository_path(good)) << good;
  for (const char* bad :
       {"", "/etc/passwd", "..", "../a", "a/../b", "a/..", "a//b", "a/", "./a", "a\\b", "a\nb", "a\x7f"})
    EXPECT_FALSE(is_repository_path(bad)) << bad;
  EXPECT_FALSE(is_repository_path(std::string(256, 'a')));
  EXPECT_FALSE(is_repository_path(std::string("a\0b", 3)));
  std::string deep = "a";
  while (deep.size() <= 1024) deep += "/a";
  EXPECT_FALSE(is_repository_path(deep));
}

TEST(HubName, Commits) {
  EXPECT_TRUE(is_commit(std::string(40, 'a')));
  EXPECT_FALSE(is_commit(std::string(39, 'a')));
  EXPECT_FALSE(is_commit(std::string(40, 'A')));
  EXPECT_FALSE(is_commit(std::string(40, '/')));
}

}  // namespace
}  // namespace lumen::model::file
