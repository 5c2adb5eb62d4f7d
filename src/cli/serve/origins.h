// Which hosts and which pages of browsers may use the server: the checks of the headers Host and Origin, and the
// headers of CORS. A page of another site must not use a server that listens on the local machine, not even after its
// name was bound to the local address (DNS rebinding). Proved by tests/cli/serve/origins_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/serve/http.h"

namespace lumen::cli {

struct OriginRules {
  bool is_local = false;             // the server listens on a loopback address
  std::vector<std::string> hosts;    // further names that Host may have, without a port
  std::vector<std::string> origins;  // pages that may send requests and read answers ("https://a.example"); "*": all
};

// "localhost", "127.x.y.z", "::1" or "[::1]".
bool is_loopback(std::string_view host);
// The host of "HOST", "HOST:PORT", "[ADDRESS]:PORT", or of an origin "SCHEME://HOST:PORT"; in lower case.
std::string host_of(std::string_view text);

class Origins {
 public:
  // Error (usage) if an origin is not of the form SCHEME://HOST[:PORT], "null" or "*".
  explicit Origins(OriginRules rules);

  // The reason to refuse a request (403); empty if it is allowed.
  std::string refusal(const HttpAsk& ask) const;
  // The headers that let the page which sent the request read its answer; none if there is no such page.
  std::vector<std::pair<std::string, std::string>> headers(const HttpAsk& ask) const;
  bool is_preflight(const HttpAsk& ask) const { return ask.method == "OPTIONS" && shares_with(ask.origin); }
  // The answer to a CORS preflight, without headers().
  HttpReply preflight(const HttpAsk& ask) const;

 private:
  bool shares_with(const std::string& origin) const;
  bool is_own_page(const HttpAsk& ask) const;

  OriginRules rules_;
};

}  // namespace lumen::cli
