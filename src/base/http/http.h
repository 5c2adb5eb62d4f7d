// Strict parsing of HTTP/1.1 request heads: a head that two programs on the path could read differently (request
// smuggling) is refused. Chunked bodies are parsed as strictly. Bytes from outside are hostile. Proved by
// tests/base/http_test.cpp, fuzzed by tests/fuzz/net/head_fuzz.cpp.
//
// May include: nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lumen {

// The parts of a head that decide how the request is handled.
struct HttpHead {
  std::string text;  // as passed to the parser
  int status = 0;    // 0: accepted; else the refusal's
  std::string message;
  size_t length = 0;  // of the body
  bool is_chunked = false, is_json = false;
  bool may_be_json = true;  // its Content-Type is that of JSON, absent, or the one that `curl -d` sends by default
};

// `bytes` end with the first empty line. `most_body`: the largest body accepted, in bytes.
HttpHead read_http_head(std::string_view bytes, size_t most_body);

// A chunked body: sizes of hexadecimal digits only, extensions of printable characters, lines that end with CR LF, no
// trailers.
class ChunkedBody {
 public:
  // How many of these bytes, which follow those taken before, belong to the body; fewer than all if it has ended or is
  // malformed.
  size_t take(std::string_view bytes);
  bool has_ended() const { return state_ == State::end; }
  bool is_broken() const { return state_ == State::broken; }

 private:
  enum class State : unsigned char {
    size,
    extension,
    size_line,
    data,
    data_return,
    data_line,
    last_return,
    last_line,
    end,
    broken
  };
  State next(char c);

  State state_ = State::size;
  size_t left_ = 0;    // of a chunk
  size_t digits_ = 0;  // of a chunk size, or characters of an extension
};

}  // namespace lumen
