// An HTTP/1.1 server: connections, limits in size and time, TLS. Input from the network is untrusted: the head of a
// request is read and checked here before any other code uses it, everything is bounded in bytes and in time, and
// clients that leave or do not read are disconnected. Proved by tests/cli/serve/serve_check.py.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::cli {

struct HttpAsk {
  std::string method, path, authorization, body, remote;
  std::string host, origin;       // the headers Host and Origin; empty: not sent
  std::string wanted_headers;     // Access-Control-Request-Headers of a CORS preflight
  bool is_json = false;           // the Content-Type of the body is that of JSON
  bool is_cross_site = false;     // a browser marks the request as another site's (Sec-Fetch-Site)
  std::function<bool()> is_gone;  // the client has closed its side
};

struct HttpReply {
  using Write = std::function<bool(std::string_view)>;  // returns false when the client has left

  int status = 200;
  std::string type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Used instead of the body: writes events until their end; returns true when it has reached it.
  std::function<bool(const Write&)> stream = {};
};

struct HttpLimits {
  int64_t connections = 1024;      // at once; more get status 503
  int64_t client_connections = 0;  // of one address; 0: no limit; more get status 503
  size_t head = size_t{32} << 10;  // bytes of a request's line and headers
  size_t body = size_t{8} << 20;
  double read = 30;   // seconds for the whole request to arrive
  double write = 30;  // seconds for the client to take a piece of an answer
  double idle = 30;   // seconds between two requests on a connection
};

struct HttpHandlers {
  std::function<HttpReply(const HttpAsk&)> answer;                             // must not throw
  std::function<std::string(int status, const std::string& message)> refusal;  // the body of an error response
};

class HttpServer {
 public:
  // Error when the address is not available or the certificate is invalid. Port 0 chooses a free port. Without a
  // certificate the server uses no TLS.
  HttpServer(const std::string& host, int port, const std::string& certificate, const std::string& key,
             HttpLimits limits, HttpHandlers handlers);
  ~HttpServer();
  int port() const;
  void start();  // serves from now on, in its own threads
  // Accepts no new connections, closes the idle ones and returns when all have ended; after `seconds` it closes those
  // that are left.
  void close(double seconds);

 private:
  class Part;
  std::unique_ptr<Part> part_;
};

}  // namespace lumen::cli
