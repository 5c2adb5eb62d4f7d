// needs: none. Heads that could be read in two ways are refused, and so are frames of chunks.
#include "base/http/http.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

int status_of(const std::string& headers, const std::string& line = "POST /tokenize HTTP/1.1") {
  return read_http_head(line + "\r\n" + headers + "\r\n", 1000).status;
}

TEST(HttpHead, WhatTheBodyIsIsSaidOnce) {
  const HttpHead head = read_http_head(
      "POST / HTTP/1.1\r\nContent-Length: 12\r\nRange: bytes=0-1\r\nContent-Type: application/json; a=b\r\n\r\n", 1000);
  EXPECT_EQ(head.status, 0);
  EXPECT_EQ(head.length, 12U);
  EXPECT_TRUE(head.is_json && !head.is_chunked);
  EXPECT_EQ(head.text.find("Range"), std::string::npos);
  EXPECT_TRUE(read_http_head("POST / HTTP/1.1\r\ntransfer-encoding:\tChunked\r\n\r\n", 1000).is_chunked);
  for (const char* headers :
       {"Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nhost: b\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: identity\r\n", "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n", "Content-Length: 0x1\r\n", "Content-Length : 1\r\n", "Content-Length:\r\n",
        "X: a\r\n folded\r\n", "X\r\n", ": a\r\n", "X: a\nY: b\r\n", "X: a\rY: b\r\n", "X: \x01\r\n"})
    EXPECT_EQ(status_of(headers), 400) << headers;
  EXPECT_EQ(status_of(std::string("X: a\0b\r\n", 8)), 400);
  EXPECT_EQ(status_of("Content-Length: 1001\r\n"), 413);
  EXPECT_EQ(status_of("Content-Encoding: gzip\r\n"), 415);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of(many), 431);
  EXPECT_EQ(status_of("", "GET /" + std::string(2000, 'a') + " HTTP/1.1"), 414);
  for (const char* line : {"GET /", "GET  HTTP/1.1", "GET a HTTP/1.1", "G(T / HTTP/1.1", "GET / HTTP/2.0", ""})
    EXPECT_EQ(status_of("", line), 400) << line;
}

TEST(HttpHead, ABodyMayBeJsonWhereCurlNamesNoType) {
  const auto head = [](const std::string& type) {
    return read_http_head("POST / HTTP/1.1\r\nContent-Length: 2\r\n" + type + "\r\n", 1000);
  };
  EXPECT_TRUE(head("").may_be_json && !head("").is_json);
  EXPECT_TRUE(head("Content-Type: application/x-www-form-urlencoded\r\n").may_be_json);
  EXPECT_TRUE(head("Content-Type: application/json\r\n").may_be_json);
  for (const char* type : {"text/plain", "multipart/form-data; boundary=a", "application/jsonp", "text/json"})
    EXPECT_FALSE(head(std::string("Content-Type: ") + type + "\r\n").may_be_json) << type;
}

TEST(HttpHead, FramesOfChunks) {
  const auto taken = [](std::string_view bytes, bool ends) {
    ChunkedBody body;
    const size_t count = body.take(bytes);
    EXPECT_EQ(body.has_ended(), ends) << bytes;
    EXPECT_EQ(body.is_broken(), !ends && count < bytes.size()) << bytes;
    return count;
  };
  EXPECT_EQ(taken("3;a=\"b\"\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nGET /", true), 34U);
  EXPECT_EQ(taken("0\r\n\r\n", true), 5U);
  for (const char* broken :
       {"\r\n", "3\nabc", "3 \r\nabc", "+3\r\nabc", "0x3\r\nabc", "-1\r\n", "3\r\nabcd\r\n", "3\r\nabc\n0\r\n\r\n",
        "000000001\r\na", "0\r\nX: trailer\r\n\r\n", "0\r\n\n", "3;\x01\r\nabc", "3;a\nabc", "0\r\r"})
    (void)taken(broken, false);
  (void)taken("1;" + std::string(300, 'a') + "\r\n", false);
}

}  // namespace
}  // namespace lumen
