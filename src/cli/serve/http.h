// HTTP/1.1 for servers of ours: connections, their limits and times, TLS. Bytes from outside are hostile: the head of a
// request is read and checked here before anything else sees it, everything has a bound in bytes and in time, and who
// leaves or does not read is let go. Proved by tests/cli/serve/serve_check.py.
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
  std::function<bool()> is_gone;  // the client has closed its side
};

struct HttpReply {
  using Write = std::function<bool(std::string_view)>;  // false when nobody reads

  int status = 200;
  std::string type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // In place of a body: writes events until their end; true when it has come to it.
  std::function<bool(const Write&)> stream = {};
};

struct HttpLimits {
  int64_t connections = 256;       // at once; more are told 503
  int64_t client_connections = 0;  // of one address; 0: as many as come; more are told 503
  size_t head = size_t{32} << 10;  // bytes of a request's line and headers
  size_t body = size_t{8} << 20;
  double read = 30;   // seconds in which a request must be there, whole
  double write = 30;  // seconds in which a piece of an answer must be taken
  double idle = 30;   // seconds between two requests of a connection
};

struct HttpHandlers {
  std::function<HttpReply(const HttpAsk&)> answer;                             // throws nothing
  std::function<std::string(int status, const std::string& message)> refusal;  // the body of what refuses
};

class HttpServer {
 public:
  // Error when the address cannot be had, or the certificate is none. Port 0 takes a free one. Without a certificate:
  // no TLS.
  HttpServer(const std::string& host, int port, const std::string& certificate, const std::string& key,
             HttpLimits limits, HttpHandlers handlers);
  ~HttpServer();
  int port() const;
  void start();  // answers from now on, in threads of its own
  // Nobody new is let in; ends when all connections have, for which those that are idle are closed. After `seconds`
  // all are.
  void close(double seconds);

 private:
  class Part;
  std::unique_ptr<Part> part_;
};

}  // namespace lumen::cli
