// Parts of http and https addresses. Proved by tests/base/fetch/url_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lumen {

struct Url {
  bool is_secure = false;
  std::string host;  // in lower case; "[::1]" keeps its brackets
  int port = 0;
  std::string path;  // with the query, from "/"

  std::string origin() const;  // "https://host"; with ":port" where it is not the scheme's own
  std::string text() const { return origin() + path; }
  bool is_loopback() const;
};

// nullopt for other schemes, for user names and passwords, and for spaces and control characters.
std::optional<Url> parse_url(std::string_view text);

// The address that a Location header of `base` means; nullopt where it is none.
std::optional<Url> redirected(const Url& base, std::string_view location);

// Percent-encodes all but letters, digits, - _ . ~ and the characters in `kept`.
std::string url_encoded(std::string_view text, std::string_view kept = {});

}  // namespace lumen
