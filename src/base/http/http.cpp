#include "base/http/http.h"

#include <algorithm>
#include <cstdint>

namespace lumen {
namespace {

constexpr size_t kMostHeaders = 100, kLongestPath = 1024;
constexpr size_t kMostDigits = 8, kLongestExtension = 256;  // of the line before a chunk

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? x + 32 : x) == (y >= 'A' && y <= 'Z' ? y + 32 : y);
  });
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Reads one header line; response options that this server does not support (ranges, compression) are not passed on.
void read_header(std::string_view line, size_t most_body, HttpHead* head, bool* has_length, bool* has_host) {
  const auto refuse = [&](int status, const char* message) {
    head->status = status;
    head->message = message;
  };
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return refuse(400, "a header is no NAME: VALUE");
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(), [](char c) { return (uint8_t(c) < 32 && c != '\t') || c == 127; }))
    return refuse(400, "a header has characters that headers cannot have");
  if (same_word(name, "Content-Length")) {
    const bool digits = !value.empty() && value.size() <= 15 &&
                        std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || *has_length) return refuse(400, "Content-Length is no number, or is there twice");
    *has_length = true;
    head->length = std::stoull(std::string(value));
    if (head->length > most_body) return refuse(413, "the request is too long");
  } else if (same_word(name, "Host")) {
    if (*has_host) return refuse(400, "Host is there twice");
    *has_host = true;
  } else if (same_word(name, "Transfer-Encoding")) {
    if (!same_word(value, "chunked") || head->is_chunked) return refuse(400, "Transfer-Encoding may be chunked alone");
    head->is_chunked = true;
  } else if (same_word(name, "Content-Encoding")) {
    if (!same_word(value, "identity")) return refuse(415, "compressed requests are not supported");
  } else if (same_word(name, "Content-Type")) {
    const std::string_view type = trimmed(value.substr(0, value.find(';')));
    head->is_json = same_word(type, "application/json");
    head->may_be_json = head->is_json || same_word(type, "application/x-www-form-urlencoded");
  }
  for (const char* unused : {"Range", "Accept-Encoding", "If-Range"})
    if (same_word(name, unused)) return;
  head->text += line;
  head->text += "\r\n";
}

}  // namespace

HttpHead read_http_head(std::string_view bytes, size_t most_body) {
  HttpHead head;
  bool has_length = false, has_host = false;
  size_t lines = 0;
  for (size_t at = 0; head.status == 0; ++lines) {
    const size_t end = bytes.find("\r\n", at);
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 2;
    if (line.find('\n') != std::string_view::npos || line.find('\r') != std::string_view::npos ||
        line.find('\0') != std::string_view::npos) {
      head.status = 400;
      head.message = "no request of HTTP";
    } else if (lines == 0) {
      const size_t space = line.find(' '), last = line.rfind(' ');
      const bool is_request = space != std::string_view::npos && last > space && is_token(line.substr(0, space)) &&
                              line[space + 1] == '/' &&
                              (line.substr(last + 1) == "HTTP/1.1" || line.substr(last + 1) == "HTTP/1.0");
      if (!is_request) head.status = 400;
      if (line.size() > kLongestPath) head.status = 414;
      head.message = is_request ? "the path is too long" : "no request of HTTP";
      head.text = std::string(line) + "\r\n";
    } else if (line.empty()) {
      break;
    } else if (lines > kMostHeaders) {
      head.status = 431;
      head.message = "too many headers";
    } else {
      read_header(line, most_body, &head, &has_length, &has_host);
    }
  }
  if (head.status == 0 && head.is_chunked && has_length) {
    head.status = 400;
    head.message = "Content-Length and Transfer-Encoding exclude each other";
  }
  head.text += "\r\n";
  return head;
}

size_t ChunkedBody::take(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size() && !has_ended() && !is_broken()) {
    if (state_ == State::data) {
      const size_t some = std::min(left_, bytes.size() - done);
      done += some;
      left_ -= some;
      if (left_ == 0) state_ = State::data_return;
      continue;
    }
    state_ = next(bytes[done]);
    if (!is_broken()) ++done;
  }
  return done;
}

ChunkedBody::State ChunkedBody::next(char c) {
  switch (state_) {
    case State::size: {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit >= 0) {
        left_ = left_ * 16 + size_t(digit);
        return ++digits_ <= kMostDigits ? State::size : State::broken;
      }
      if (digits_ == 0) return State::broken;
      digits_ = 0;
      return c == ';' ? State::extension : c == '\r' ? State::size_line : State::broken;
    }
    case State::extension:
      if (c == '\r') return State::size_line;
      return (c >= ' ' && c < 127 && ++digits_ <= kLongestExtension) ? State::extension : State::broken;
    case State::size_line:
      digits_ = 0;
      if (c != '\n') return State::broken;
      return left_ > 0 ? State::data : State::last_return;
    case State::data_return:
      return c == '\r' ? State::data_line : State::broken;
    case State::data_line:
      return c == '\n' ? State::size : State::broken;
    case State::last_return:
      return c == '\r' ? State::last_line : State::broken;
    case State::last_line:
      return c == '\n' ? State::end : State::broken;
    case State::data:
    case State::end:
    case State::broken:
      break;
  }
  return state_;
}

}  // namespace lumen
