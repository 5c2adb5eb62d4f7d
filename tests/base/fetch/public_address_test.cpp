// needs: none. Which addresses are public, in all the forms in which a private one can be written.
#include "base/fetch/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace lumen {
namespace {

bool is_public(const std::string& text) {
  sockaddr_storage place{};
  if (text.find(':') == std::string::npos) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &in.sin_addr), 1) << text;
    std::memcpy(&place, &in, sizeof in);
    return is_public_address(reinterpret_cast<const sockaddr*>(&place), sizeof in);
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &in.sin6_addr), 1) << text;
  std::memcpy(&place, &in, sizeof in);
  return is_public_address(reinterpret_cast<const sockaddr*>(&place), sizeof in);
}

TEST(PublicAddress, Public) {
  for (const char* text : {"1.1.1.1",        "9.255.255.255",   "11.0.0.0",         "100.63.255.255",
                           "100.128.0.0",    "126.255.255.255", "128.0.0.1",        "169.253.255.255",
                           "172.15.255.255", "172.32.0.0",      "192.167.255.255",  "198.17.255.255",
                           "198.20.0.0",     "223.255.255.255", "2600::1",          "2001:4860:4860::8888",
                           "2001:200::1",    "::ffff:1.1.1.1",  "64:ff9b::1.1.1.1", "2002:101:101::1"})
    EXPECT_TRUE(is_public(text)) << text;
}

TEST(PublicAddress, Special) {
  for (const char* text : {"0.0.0.0",      "10.0.0.1",    "10.255.255.255",   "100.64.0.1",      "100.127.255.255",
                           "127.0.0.1",    "127.9.9.9",   "169.254.169.254",  "172.16.0.1",      "172.31.255.255",
                           "192.0.0.1",    "192.0.2.1",   "192.168.0.1",      "198.18.0.1",      "198.19.255.255",
                           "198.51.100.7", "203.0.113.9", "224.0.0.1",        "240.0.0.1",       "255.255.255.255",
                           "::",           "::1",         "::127.0.0.1",      "fe80::1",         "fc00::1",
                           "fd12::1",      "ff02::1",     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
                           "64:ff9b:1::1", "2001::1",     "2001:db8::1",      "2002:7f00:1::1",  "2002:c0a8:1::1",
                           "100::1",       "3fff::1"})
    EXPECT_FALSE(is_public(text)) << text;
}

TEST(PublicAddress, OtherSockets) {
  sockaddr place{};
  place.sa_family = AF_UNIX;
  EXPECT_FALSE(is_public_address(&place, sizeof place));
  place.sa_family = AF_INET;
  EXPECT_FALSE(is_public_address(&place, 4));  // cut
}

}  // namespace
}  // namespace lumen
