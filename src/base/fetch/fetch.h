// HTTP and HTTPS requests to servers of others, by libcurl. The library is opened at run time (libcurl.so.4, or the
// file in LUMEN_CURL_LIBRARY), so that the program starts on systems without it. Answers are hostile: heads and bodies
// are bounded in bytes and in time, and no redirect is followed here. Proved by tests/cli/hub/hub_check.py.
//
// May include: base.
// Offers: url.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen {

struct FetchRequest {
  std::string url;  // http:// or https://
  bool head_only = false;
  std::vector<std::pair<std::string, std::string>> headers = {};
  uint64_t most = 0;  // bytes of the body
  double connect_seconds = 30;
  double idle_seconds = 30;  // the longest time with less than 1 KiB/s
  double whole_seconds = 0;  // for all of it; 0: no limit
  // Connects only to public addresses (public_address.h), directly and not through a proxy: for addresses that
  // strangers give. What the name means is checked at the connection itself, so a name server cannot change it in
  // between.
  bool is_public = false;
};

enum class FetchFailure {
  none,         // there is an answer; its status may be an error
  unreachable,  // no such host, or no connection
  broken,       // the connection ended early, or was too slow
  untrusted,    // TLS: the certificate, or no common version
  refused,      // the answer violates a bound
  interrupted,  // the caller asked for the end
};

struct FetchReply {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  FetchFailure failure = FetchFailure::none;
  std::string reason;  // of the failure, for users

  std::string header(std::string_view name) const;  // the first; empty without one
};

class Fetcher {
 public:
  // Takes a piece of the body, whose head is complete; false refuses the rest.
  using Take = std::function<bool(const FetchReply& head, std::string_view piece)>;

  // Error (hardware) with a hint when there is no libcurl.
  Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  ~Fetcher();

  // One request; connections are reused. `is_stopped` is called several times a second.
  FetchReply ask(const FetchRequest& request, const Take& take, const std::function<bool()>& is_stopped);

 private:
  struct Part;
  std::unique_ptr<Part> part_;
};

}  // namespace lumen
