#include "base/fetch/fetch.h"

#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/fetch/curl_library.h"
#include "base/fetch/public_address.h"
#include "base/fetch/url.h"
#include "base/printable.h"

namespace lumen {
namespace {

constexpr size_t kMostHead = size_t{64} << 10;  // bytes of all headers
constexpr long kSlow = 1024;                    // bytes a second; slower connections are given up
constexpr size_t kLongestReason = 200;

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// The state of one request. libcurl's callbacks are C functions, so exceptions are kept and rethrown after them.
struct Transfer {
  const FetchRequest& request;
  const Fetcher::Take& take;
  const std::function<bool()>& is_stopped;
  FetchReply reply = {};
  size_t head_bytes = 0;
  uint64_t body_bytes = 0;
  std::string refusal = {};
  std::exception_ptr thrown = nullptr;
  bool stopped = false;

  // Calls `work`, which returns false to end the transfer; so does an exception.
  template <class Work>
  bool guarded(const Work& work) {
    try {
      return work();
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }

  bool add_header(std::string_view line) {
    head_bytes += line.size();
    if (head_bytes > kMostHead) {
      refusal = "its head is longer than 64 KiB";
      return false;
    }
    if (line.starts_with("HTTP/")) {  // the first line of this head, or of another after 100 Continue
      reply.headers.clear();
      const size_t blank = line.find(' ');
      reply.status = blank == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(blank + 1, 3)).c_str());
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name = trimmed(line.substr(0, colon));
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    reply.headers.emplace_back(std::move(name), trimmed(line.substr(colon + 1)));
    return true;
  }

  bool add_piece(std::string_view piece) {
    body_bytes += piece.size();
    if (body_bytes > request.most) {
      refusal = fmt::format("its body is longer than {}", size_text(double(request.most)));
      return false;
    }
    if (take(reply, piece)) return true;
    if (refusal.empty()) refusal = "its body is not what its head announces";
    return false;
  }
};

Transfer& transfer_of(void* user) {
  return *static_cast<Transfer*>(user);
}

extern "C" size_t on_header(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = transfer_of(user);
  return transfer.guarded([&] { return transfer.add_header({data, size}); }) ? size : 0;
}

extern "C" size_t on_piece(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = transfer_of(user);
  if (size == 0) return 0;
  return transfer.guarded([&] { return transfer.add_piece({data, size}); }) ? size : 0;
}

extern "C" int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Transfer& transfer = transfer_of(user);
  return transfer.guarded([&] {
    transfer.stopped = transfer.is_stopped();
    return !transfer.stopped;
  })
             ? 0
             : 1;
}

// Opens the socket of a connection that may only lead to a public address.
extern "C" curl_socket_t on_open(void* user, curlsocktype, curl_sockaddr* to) {
  if (is_public_address(&to->addr, to->addrlen)) return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  transfer_of(user).refusal = "its address is not a public one";
  return CURL_SOCKET_BAD;
}

FetchFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return FetchFailure::none;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return FetchFailure::unreachable;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
      return FetchFailure::untrusted;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return FetchFailure::broken;
    default:
      return FetchFailure::refused;
  }
}

// Certificates of the user's own authority. libcurl reads none of these variables itself; its command does.
std::string certificates() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"})
    if (const char* file = std::getenv(name); file && *file) return file;
  return {};
}

long milliseconds(double seconds) {
  return std::lround(seconds * 1000);
}

}  // namespace

std::string FetchReply::header(std::string_view name) const {
  for (const auto& [one, value] : headers)
    if (one == name) return value;
  return {};
}

struct Fetcher::Part {
  const CurlLibrary& curl = curl_library();
  CURL* handle = curl.easy_init();
};

Fetcher::Fetcher() : part_(std::make_unique<Part>()) {
  if (!part_->handle) throw Error(Exit::hardware, "libcurl gives no handle", "free memory");
}
Fetcher::~Fetcher() {
  if (part_->handle) part_->curl.easy_cleanup(part_->handle);
}

FetchReply Fetcher::ask(const FetchRequest& request, const Take& take, const std::function<bool()>& is_stopped) {
  const CurlLibrary& curl = part_->curl;
  CURL* const handle = part_->handle;
  Transfer transfer{request, take, is_stopped};
  const std::optional<Url> url = parse_url(request.url);
  if (!url) {
    transfer.reply.failure = FetchFailure::refused;
    transfer.reply.reason = "its address is no http or https address";
    return transfer.reply;
  }
  curl_slist* headers = nullptr;
  for (const auto& [name, value] : request.headers) headers = curl.slist_append(headers, (name + ": " + value).c_str());
  const std::string authority = certificates();
  char words[CURL_ERROR_SIZE] = "";
  curl.easy_reset(handle);  // keeps the connections
  curl.easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl.easy_setopt(handle, CURLOPT_NOBODY, long{request.head_only});
  curl.easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
  curl.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl.easy_setopt(handle, CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
  curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(handle, CURLOPT_ERRORBUFFER, words);
  curl.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.connect_seconds));
  curl.easy_setopt(handle, CURLOPT_TIMEOUT_MS, milliseconds(request.whole_seconds));
  curl.easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, kSlow);
  curl.easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(request.idle_seconds)));
  curl.easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
  curl.easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_piece);
  curl.easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl.easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl.easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  if (url->is_loopback() || request.is_public) curl.easy_setopt(handle, CURLOPT_NOPROXY, "*");
  if (request.is_public) {
    curl.easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl.easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &transfer);
    curl.easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
  }
  if (!authority.empty()) curl.easy_setopt(handle, CURLOPT_CAINFO, authority.c_str());
  const CURLcode code = curl.easy_perform(handle);
  curl.slist_free_all(headers);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  FetchReply& reply = transfer.reply;
  reply.failure = transfer.stopped ? FetchFailure::interrupted : failure_of(code);
  if (reply.failure == FetchFailure::none) return reply;
  if (!transfer.refusal.empty()) reply.failure = FetchFailure::refused;
  reply.reason = !transfer.refusal.empty() ? transfer.refusal : *words ? words : curl.easy_strerror(code);
  reply.reason = printable(reply.reason.substr(0, kLongestReason));
  return reply;
}

}  // namespace lumen
