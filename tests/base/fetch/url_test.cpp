// needs: none. Addresses: their parts, what is refused, and where a redirect leads.
#include "base/fetch/url.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

std::string text_of(const std::optional<Url>& url) {
  return url ? url->text() : "none";
}

TEST(Url, Parts) {
  const std::optional<Url> url = parse_url("HTTPS://Hub.Example/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_TRUE(url->is_secure);
  EXPECT_EQ(url->host, "hub.example");
  EXPECT_EQ(url->text(), "https://hub.example/a/b?c=d");
  EXPECT_EQ(text_of(parse_url("http://127.0.0.1:8080")), "http://127.0.0.1:8080/");
  EXPECT_EQ(text_of(parse_url("http://[::1]:80/x")), "http://[::1]/x");
  EXPECT_EQ(text_of(parse_url("http://[::1]")), "http://[::1]/");
  // A port is part of the text where it is not the scheme's own.
  EXPECT_EQ(text_of(parse_url("https://host:80/")), "https://host:80/");
  EXPECT_EQ(text_of(parse_url("http://host:443/")), "http://host:443/");
  EXPECT_EQ(parse_url("https://host")->port, 443);
  EXPECT_TRUE(parse_url("http://127.0.0.1:1")->is_loopback());
  EXPECT_FALSE(parse_url("http://10.0.0.1")->is_loopback());
}

TEST(Url, Refused) {
  for (const char* text : {"", "file:///etc/passwd", "ftp://host/", "//host/", "http://", "http:///a",
                           "https://user@host/", "https://user:secret@host/", "http://host:0/", "http://host:99999/",
                           "http://host:x/", "http://ho st/", "http://host/a b", "http://host/\n", "javascript:x"})
    EXPECT_FALSE(parse_url(text)) << text;
  EXPECT_FALSE(parse_url("http://host/" + std::string(9000, 'a')));
}

TEST(Url, Redirects) {
  const Url base = *parse_url("https://hub:444/a/b");
  EXPECT_EQ(text_of(redirected(base, "/c")), "https://hub:444/c");
  EXPECT_EQ(text_of(redirected(base, "//other/c")), "https://other/c");
  EXPECT_EQ(text_of(redirected(base, "http://other/c?d")), "http://other/c?d");
  EXPECT_EQ(text_of(redirected(base, "")), "none");
  EXPECT_EQ(text_of(redirected(base, "file:///etc/passwd")), "none");
}

TEST(Url, Encoding) {
  EXPECT_EQ(url_encoded("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_encoded("a b/c?d#e", "/"), "a%20b/c%3Fd%23e");
  EXPECT_EQ(url_encoded("\xed\x95\x9c"), "%ED%95%9C");
}

}  // namespace
}  // namespace lumen
