// needs: none. Hosts and pages that may use the server, and the headers of CORS.
#include "cli/serve/origins.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::cli {
namespace {

HttpAsk ask_of(const std::string& host, const std::string& origin = {}, const std::string& method = "POST") {
  HttpAsk out;
  out.method = method;
  out.host = host;
  out.origin = origin;
  out.is_json = true;
  return out;
}

TEST(ServeOrigins, AHostIsReadWithoutItsPort) {
  EXPECT_EQ(host_of("Chat.Example.:8080"), "chat.example");
  EXPECT_EQ(host_of("[::1]:80"), "[::1]");
  EXPECT_EQ(host_of("https://a.example:1"), "a.example");
  EXPECT_EQ(host_of(""), "");
  EXPECT_TRUE(is_loopback("127.0.0.53") && is_loopback("[::1]") && is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("127.evil.example") || is_loopback("localhost.evil.example") || is_loopback(""));
}

TEST(ServeOrigins, ALocalServerRefusesNamesOfOtherHosts) {
  const Origins local({true, {"box.lan"}, {}});
  for (const char* host : {"localhost:8080", "127.0.0.1", "[::1]:80", "BOX.lan:1", ""})
    EXPECT_EQ(local.refusal(ask_of(host)), "") << host;
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "x"})
    EXPECT_NE(local.refusal(ask_of(host, {}, "GET")), "") << host;
  EXPECT_EQ(Origins({false, {}, {}}).refusal(ask_of("evil.example")), "");
  EXPECT_NE(Origins({false, {"box.lan"}, {}}).refusal(ask_of("evil.example")), "");
}

TEST(ServeOrigins, PagesOfOtherSitesAreRefused) {
  const Origins local({true, {}, {"https://chat.example/"}});
  for (const char* origin : {"", "http://localhost:8080", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:5",
                             "https://chat.example", "https://CHAT.example"})
    EXPECT_EQ(local.refusal(ask_of("localhost:8080", origin)), "") << origin;
  for (const char* origin :
       {"http://evil.example", "null", "https://chat.example:8443", "https://localhost.evil.example"})
    EXPECT_NE(local.refusal(ask_of("localhost:8080", origin)), "") << origin;
  HttpAsk bare = ask_of("localhost:8080");
  bare.is_cross_site = true;
  EXPECT_NE(local.refusal(bare), "");
  bare.method = "GET";  // a link to the page of this server
  EXPECT_EQ(local.refusal(bare), "");
}

TEST(ServeOrigins, BodiesThatNeedNoPreflightAreTakenFromOwnPagesOnly) {
  const Origins open({false, {}, {}});
  HttpAsk form = ask_of("box.lan:8080", "http://evil.example");
  EXPECT_EQ(open.refusal(form), "");  // a browser sends JSON only after a preflight, which is refused
  form.is_json = false;
  form.body = "{}";
  EXPECT_NE(open.refusal(form), "");
  form.origin = "http://box.lan:8080";
  EXPECT_EQ(open.refusal(form), "");
  form.origin.clear();  // curl
  EXPECT_EQ(open.refusal(form), "");
}

TEST(ServeOrigins, CorsNamesTheOriginThatAsked) {
  const Origins some({false, {}, {"https://a.example"}});
  const auto headers = some.headers(ask_of("h", "https://a.example"));
  ASSERT_EQ(headers.size(), 2U);
  EXPECT_EQ(headers[1].second, "https://a.example");
  EXPECT_EQ(some.headers(ask_of("h", "https://b.example")).size(), 1U);
  EXPECT_FALSE(some.is_preflight(ask_of("h", "https://b.example", "OPTIONS")));
  EXPECT_FALSE(Origins({false, {}, {}}).is_preflight(ask_of("h", "https://b.example", "OPTIONS")));
  EXPECT_TRUE(Origins({false, {}, {}}).headers(ask_of("h", "https://b.example")).empty());

  const Origins all({true, {}, {"*"}});
  HttpAsk ask = ask_of("localhost", "https://b.example", "OPTIONS");
  ask.wanted_headers = "authorization,x-stainless-os";
  ASSERT_TRUE(all.is_preflight(ask));
  const HttpReply reply = all.preflight(ask);
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.headers.back().second, "authorization,x-stainless-os");
  ask.wanted_headers = "a\r\nSet-Cookie: b";
  EXPECT_NE(all.preflight(ask).headers.back().first, "Access-Control-Allow-Headers");
}

TEST(ServeOrigins, AnOriginHasAScheme) {
  EXPECT_THROW(Origins({true, {}, {"chat.example"}}), Error);
  EXPECT_THROW(Origins({true, {}, {"https://chat.example/path"}}), Error);
  EXPECT_NO_THROW(Origins({true, {}, {"null", "vscode-webview://abc"}}));
}

}  // namespace
}  // namespace lumen::cli
