#include "cli/serve/http.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/http/http.h"
#include "base/net/net.h"
#include "base/threads/threads.h"
#include "cli/serve/clients.h"

// The options that the library was built with, because the layout of its classes depends on them.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <httplib.h>
#pragma GCC diagnostic pop

namespace lumen::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadAtOnce = 16384;
constexpr size_t kMostAnswers = 100'000;  // on one connection
constexpr rlim_t kOtherFiles = 256;       // models, caches, logs

// Raises the process's limit of open files to `count`, as far as it is allowed to.
void allow_files(rlim_t count) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= count) return;
  files.rlim_cur = std::min(count, files.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// The timeout of poll() in milliseconds.
int until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return int(std::clamp<int64_t>(left + 1, 0, 60'000));
}

// Waits until the socket is ready; false when `end` comes first.
bool wait_for_socket(int fd, short events, Clock::time_point end) {
  while (Clock::now() < end) {
    pollfd p{fd, events, 0};
    const int got = ::poll(&p, 1, until(end));
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
  return false;
}

// One client. The head of a request is read and checked first; the library then reads the body from the socket.
class Connection : public httplib::Stream {
 public:
  Connection(int fd, SSL* ssl, const HttpLimits& limits, std::string remote)
      : fd_(fd), ssl_(ssl), limits_(limits), remote_(std::move(remote)) {}
  ~Connection() override {
    if (ssl_) SSL_free(ssl_);
    ::close(fd_);
  }

  // Reads a request's head; false when the client has closed the connection or the head is not complete in time.
  bool next_head(const std::atomic<bool>& is_closing) {
    given_ = 0;
    head_ = {};
    Clock::time_point end = after(limits_.idle);
    bool has_begun = false;
    for (;;) {
      if (!bytes_.empty() && !has_begun) {
        has_begun = true;
        end = after(limits_.read);
      }
      const size_t last = bytes_.find("\r\n\r\n");
      if (last != std::string::npos && last + 4 <= limits_.head) {
        head_ = read_http_head(std::string_view(bytes_).substr(0, last + 4), limits_.body);
        chunks_ = {};
        bytes_.erase(0, last + 4);
        body_end_ = end;
        return true;
      }
      if (bytes_.size() > limits_.head) {
        head_.status = 431;
        head_.message = "the head of the request is too long";
        return true;
      }
      // Wakes up regularly, because an idle connection is closed when the server shuts down.
      if (!has_begun && is_closing) return false;
      const auto some = has_begun ? end : std::min(end, after(0.2));
      if (!more(some) && (is_over_ || Clock::now() >= end)) return false;
    }
  }
  const HttpHead& head() const { return head_; }
  // Marks the body as read completely, so that another request may follow on the connection.
  void body_was_read() { body_read_ = true; }
  bool may_go_on() const { return !is_over_ && !is_last_ && (body_read_ || (head_.length == 0 && !head_.is_chunked)); }
  void begin_answer() { body_read_ = false; }
  void end_behind_answer() { is_last_ = true; }

  bool is_gone() const {
    pollfd p{fd_, POLLRDHUP, 0};
    return is_over_ || (::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
  }
  const std::string& remote() const { return remote_; }
  int fd() const { return fd_; }

  bool is_readable() const override { return !bytes_.empty() || wait_for_socket(fd_, POLLIN, body_end_); }
  bool is_writable() const override { return !is_over_ && wait_for_socket(fd_, POLLOUT, after(limits_.write)); }
  ssize_t read(char* to, size_t size) override {
    if (given_ < head_.text.size()) {
      const size_t count = std::min(size, head_.text.size() - given_);
      std::copy_n(head_.text.data() + given_, count, to);
      given_ += count;
      return ssize_t(count);
    }
    if (bytes_.empty() && !more(body_end_)) return -1;
    size_t count = std::min(size, bytes_.size());
    if (head_.is_chunked && (count = chunks_.take(std::string_view(bytes_).substr(0, count))) == 0) return -1;
    std::copy_n(bytes_.data(), count, to);
    bytes_.erase(0, count);
    return ssize_t(count);
  }
  // Writes all bytes within the time limit of a piece, or fails.
  ssize_t write(const char* from, size_t size) override {
    const auto end = after(limits_.write);
    size_t done = 0;
    while (done < size && !is_over_) {
      const ssize_t n = put_some(from + done, size - done, end);
      if (n > 0) done += size_t(n);
    }
    return done == size ? ssize_t(size) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = remote_;
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip = {};
    port = 0;
  }
  socket_t socket() const override { return fd_; }

  void say_goodbye() {
    if (ssl_ && !is_over_) SSL_shutdown(ssl_);
    ::shutdown(fd_, SHUT_WR);
  }
  bool shake_hands() {
    const auto end = after(limits_.read);
    while (ssl_ && !is_over_) {
      const int got = SSL_accept(ssl_);
      if (got == 1) return true;
      if (!wait_for_tls(got, end)) return false;
    }
    return !is_over_;
  }

 private:
  // Waits as SSL_get_error asks; returns whether to retry the operation.
  bool wait_for_tls(int got, Clock::time_point end) {
    const int why = SSL_get_error(ssl_, got);
    const bool reads = why == SSL_ERROR_WANT_READ, writes = why == SSL_ERROR_WANT_WRITE;
    const bool again = (reads || writes) && wait_for_socket(fd_, reads ? POLLIN : POLLOUT, end);
    if (!reads && !writes) is_over_ = true;
    return again;
  }

  // Reads available bytes; false when none came before `end` or the client has closed its side.
  bool more(Clock::time_point end) {
    char some[kReadAtOnce];
    while (!is_over_) {
      ssize_t n = -1;
      if (ssl_) {
        n = SSL_read(ssl_, some, sizeof some);
        if (n <= 0 && !wait_for_tls(int(n), end)) return false;
      } else {
        n = ::recv(fd_, some, sizeof some, MSG_DONTWAIT);
        const bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (n == 0 || (n < 0 && !waits)) is_over_ = true;
        if (waits && !wait_for_socket(fd_, POLLIN, end)) return false;
      }
      if (n > 0) {
        bytes_.append(some, size_t(n));
        return true;
      }
    }
    return false;
  }

  ssize_t put_some(const char* from, size_t size, Clock::time_point end) {
    ssize_t n = -1;
    bool again = false;
    if (ssl_) {
      n = SSL_write(ssl_, from, int(std::min<size_t>(size, 1 << 20)));
      again = n <= 0 && wait_for_tls(int(n), end);
    } else {
      n = ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      const bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      again = waits && wait_for_socket(fd_, POLLOUT, end);
    }
    if (n <= 0 && !again) is_over_ = true;
    return n;
  }

  int fd_;
  SSL* ssl_;
  const HttpLimits& limits_;
  std::string remote_;
  HttpHead head_;
  ChunkedBody chunks_;
  size_t given_ = 0;   // bytes of the head already passed to the parser
  std::string bytes_;  // read but not yet consumed
  Clock::time_point body_end_;
  bool is_over_ = false, is_last_ = false, body_read_ = false;
};

thread_local Connection* current = nullptr;

}  // namespace

class HttpServer::Part : public httplib::Server {
 public:
  Part(HttpLimits limits, HttpHandlers handlers) : limits_(limits), handlers_(std::move(handlers)) {
    const auto without_body = [this](const httplib::Request& ask, httplib::Response& reply) { answer(ask, {}, reply); };
    const auto with_body = [this](const httplib::Request& ask, httplib::Response& reply,
                                  const httplib::ContentReader& content) { read_and_answer(ask, reply, content); };
    Get(".*", without_body);
    Options(".*", without_body);
    Post(".*", with_body);
    Put(".*", with_body);
    Patch(".*", with_body);
    Delete(".*", with_body);
    set_error_handler([this](const httplib::Request&, httplib::Response& reply) {
      if (reply.body.empty() && reply.status >= 400) refuse(reply, reply.status, "the request cannot be read");
    });
    set_exception_handler([this](const httplib::Request&, httplib::Response& reply, std::exception_ptr) {
      refuse(reply, 500, "the server failed");
    });
    set_payload_max_length(limits_.body);
    set_keep_alive_timeout(time_t(limits_.idle));  // sent to clients as a header
    set_keep_alive_max_count(kMostAnswers);
  }
  ~Part() override {
    close(0);
    if (listener_ >= 0) ::close(listener_);
    svr_sock_ = INVALID_SOCKET;
    if (tls_) SSL_CTX_free(tls_);
  }

  void use_tls(const std::string& certificate, const std::string& key) {
    tls_ = SSL_CTX_new(TLS_server_method());
    if (!tls_) throw Error(Exit::hardware, "TLS cannot be had", "");
    SSL_CTX_set_min_proto_version(tls_, TLS1_2_VERSION);
    SSL_CTX_set_mode(tls_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(tls_, SSL_OP_NO_RENEGOTIATION);
    if (SSL_CTX_use_certificate_chain_file(tls_, certificate.c_str()) != 1)
      throw user_error("{}: no certificate in PEM", certificate);
    if (SSL_CTX_use_PrivateKey_file(tls_, key.c_str(), SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(tls_) != 1)
      throw user_error("{}: no private key in PEM of that certificate", key);
  }

  void listen_at(const std::string& host, int port) {
    listener_ = open_listener({.host = host, .port = port}, "--port");
    svr_sock_ = listener_;  // the socket that streams check
    port_ = listener_port(listener_);
  }

  int port() const { return port_; }

  void start() {
    allow_files(rlim_t(limits_.connections) + kOtherFiles);
    acceptor_ = Thread("for the server's connections", [this] {
      while (!is_closing_) {
        pollfd p{listener_, POLLIN, 0};
        if (::poll(&p, 1, 100) > 0) accept_one();
      }
    });
  }

  void close(double seconds) {
    is_closing_ = true;
    acceptor_.join();
    std::unique_lock lock(mutex_);
    const auto none = [&] { return count_ == 0; };
    left_.wait_for(lock, std::chrono::duration<double>(seconds), none);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    left_.wait(lock, none);
  }

 private:
  void accept_one() {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = ::accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    char name[NI_MAXHOST] = {};
    ::getnameinfo(reinterpret_cast<sockaddr*>(&from), size, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
    const bool is_full = count_ >= limits_.connections;
    if (is_full || !clients_.enter(name))
      return turn_away(fd, is_full ? "too many connections" : "too many connections of this client");
    {
      const std::lock_guard lock(mutex_);
      ++count_;
      open_.insert(fd);
    }
    if (start_detached([this, fd, remote = std::string(name)] { serve_one(fd, remote); })) return;
    forget(fd, name);
    turn_away(fd, "the system gives no more threads");
  }

  void turn_away(int fd, const std::string& why) {
    const std::string body = handlers_.refusal(503, why);
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: "
        "application/json\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    // A TLS client could not read a plain-text answer.
    if (!tls_) (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
  }

  void forget(int fd, const std::string& remote) {
    clients_.leave(remote);
    const std::lock_guard lock(mutex_);
    open_.erase(fd);
    --count_;
    left_.notify_all();
  }

  void serve_one(int fd, const std::string& remote) {
    {
      SSL* ssl = tls_ ? SSL_new(tls_) : nullptr;
      if (ssl) SSL_set_fd(ssl, fd);
      Connection connection(fd, ssl, limits_, remote);
      current = &connection;
      try {
        bool goes_on = (!tls_ || ssl) && connection.shake_hands();
        for (size_t n = 0; goes_on && n < kMostAnswers && connection.next_head(is_closing_); ++n) {
          connection.begin_answer();
          goes_on = connection.head().status == 0 ? answer_one(connection) : refuse_head(connection);
        }
      } catch (const std::exception&) {
        // The connection is closed; the error was reported where it occurred.
      }
      current = nullptr;
      linger(connection);
      const std::lock_guard lock(mutex_);
      open_.erase(fd);  // the descriptor may be reused from here on
    }
    clients_.leave(remote);
    const std::lock_guard lock(mutex_);
    --count_;
    left_.notify_all();
  }

  // Closing while the client still sends would reset the connection and lose the answer.
  void linger(Connection& connection) const {
    connection.say_goodbye();
    char some[4096];
    const auto end = after(is_closing_ ? 0.1 : 1.0);
    for (size_t bytes = 0; bytes < limits_.body && wait_for_socket(connection.fd(), POLLIN, end);) {
      const ssize_t n = ::recv(connection.fd(), some, sizeof some, MSG_DONTWAIT);
      if (n <= 0) return;
      bytes += size_t(n);
    }
  }

  bool answer_one(Connection& connection) {
    bool is_over = false;
    const bool went = process_request(connection, is_closing_, is_over, [](httplib::Request&) {});
    return went && !is_over && !is_closing_ && connection.may_go_on();
  }

  bool refuse_head(Connection& connection) {
    const HttpHead& head = connection.head();
    const std::string body = handlers_.refusal(head.status, head.message);
    const std::string text = fmt::format(
        "HTTP/1.1 {} Refused\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n{}",
        head.status, body.size(), body);
    connection.write(text.data(), text.size());
    return false;
  }

  void refuse(httplib::Response& reply, int status, const std::string& message) {
    reply.status = status;
    reply.set_header("Connection", "close");
    reply.set_content(handlers_.refusal(status, message), "application/json");
  }

  void read_and_answer(const httplib::Request& ask, httplib::Response& reply, const httplib::ContentReader& content) {
    const HttpHead& head = current->head();
    if (head.length == 0 && !head.is_chunked) return answer(ask, {}, reply);
    if (!head.may_be_json) return refuse(reply, 415, "Content-Type must be application/json");
    std::string body;
    const bool is_whole = content([&](const char* data, size_t size) {
      if (body.size() + size > limits_.body) return false;
      body.append(data, size);
      return true;
    });
    if (body.size() + kReadAtOnce > limits_.body && !is_whole) return refuse(reply, 413, "the request is too long");
    if (!is_whole) return refuse(reply, 400, "the request is incomplete");
    current->body_was_read();
    answer(ask, std::move(body), reply);
  }

  void answer(const httplib::Request& ask, std::string body, httplib::Response& reply) {
    Connection* connection = current;
    HttpAsk given;
    given.method = ask.method;
    given.path = ask.path;
    given.authorization = ask.get_header_value("Authorization");
    if (given.authorization.empty() && ask.has_header("x-api-key"))  // Anthropic's clients send the key in this header
      given.authorization = "Bearer " + ask.get_header_value("x-api-key");
    given.host = ask.get_header_value("Host");
    given.origin = ask.get_header_value("Origin");
    given.wanted_headers = ask.get_header_value("Access-Control-Request-Headers");
    given.is_json = connection->head().is_json;
    given.is_cross_site = ask.get_header_value("Sec-Fetch-Site") == "cross-site";
    given.body = std::move(body);
    given.remote = connection->remote();
    given.is_gone = [connection] { return connection->is_gone(); };
    HttpReply said = handlers_.answer(given);
    reply.status = said.status;
    for (const auto& [name, value] : said.headers) reply.set_header(name.c_str(), value);
    if (!connection->may_go_on()) reply.set_header("Connection", "close");
    if (!said.stream) return reply.set_content(said.body, said.type);
    const auto provide = [stream = std::move(said.stream)](size_t, httplib::DataSink& sink) {
      const bool is_whole = stream([&](std::string_view text) { return sink.write(text.data(), text.size()); });
      if (is_whole) sink.done();
      return is_whole;
    };
    if (ask.version != "HTTP/1.0") return reply.set_chunked_content_provider(said.type, provide);
    // The end of the connection marks the end of the stream.
    connection->end_behind_answer();
    reply.set_header("Connection", "close");
    reply.set_content_provider(said.type, provide);
  }

  HttpLimits limits_;
  HttpHandlers handlers_;
  ClientCounts clients_{limits_.client_connections};
  SSL_CTX* tls_ = nullptr;
  int listener_ = -1, port_ = 0;
  Thread acceptor_;
  std::atomic<bool> is_closing_{false};
  std::atomic<int64_t> count_{0};
  std::mutex mutex_;
  std::condition_variable left_;
  std::set<int> open_;  // sockets
};

HttpServer::HttpServer(const std::string& host, int port, const std::string& certificate, const std::string& key,
                       HttpLimits limits, HttpHandlers handlers)
    : part_(std::make_unique<Part>(limits, std::move(handlers))) {
  if (!certificate.empty()) part_->use_tls(certificate, key);
  part_->listen_at(host, port);
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return part_->port();
}
void HttpServer::start() {
  part_->start();
}
void HttpServer::close(double seconds) {
  part_->close(seconds);
}
}  // namespace lumen::cli
