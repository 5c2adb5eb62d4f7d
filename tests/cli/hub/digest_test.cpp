// needs: none. Hashes of known contents.
#include "cli/hub/digest.h"

#include <gtest/gtest.h>

namespace lumen::cli {
namespace {

std::string hash_of(DigestKind kind, std::string_view text) {
  Digest digest(kind, text.size());
  for (const char c : text) digest.add(&c, 1);
  return digest.hex();
}

TEST(HubDigest, KnownContents) {
  EXPECT_EQ(hash_of(DigestKind::sha256, "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of(DigestKind::git_sha1, ""),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // `git hash-object /dev/null`
  EXPECT_EQ(hash_of(DigestKind::git_sha1, "test content\n"), "d670460b4b4aece5915caf5c68d12f560a9fe3e4");
  EXPECT_EQ(hash_of(DigestKind::none, "abc"), "");
}

TEST(HubDigest, Kinds) {
  EXPECT_EQ(digest_kind(std::string(64, 'a')), DigestKind::sha256);
  EXPECT_EQ(digest_kind(std::string(40, '0')), DigestKind::git_sha1);
  EXPECT_EQ(digest_kind(std::string(40, 'A')), DigestKind::none);
  EXPECT_EQ(digest_kind("d41d8cd98f00b204e9800998ecf8427e-5"), DigestKind::none);
}

}  // namespace
}  // namespace lumen::cli
