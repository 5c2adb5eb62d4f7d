// The head of a request of HTTP/1.1, read strictly: what two programs on the way could read in two ways, so that one of
// them would take a part of a body for another request, is refused. And the frame of bodies in chunks, as strictly.
// Bytes from outside are hostile. Proved by tests/base/http_test.cpp, fuzzed by tests/fuzz/net/head_fuzz.cpp.
//
// May include: nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lumen {

// What a head says that the rest depends on.
struct HttpHead {
  std::string text;  // as the parser gets it
  int status = 0;    // 0: it may go on
  std::string message;
  size_t length = 0;  // of the body
  bool is_chunked = false, is_json = false;
};

// `bytes` end with the empty line, the first there is. Bodies have at most so many bytes.
HttpHead read_http_head(std::string_view bytes, size_t most_body);

// What belongs to a body in chunks: sizes of hexadecimal digits alone, extensions of printable characters, lines that
// end with CR LF, no trailers.
class ChunkedBody {
 public:
  // How many of these bytes, which follow those taken before, belong to it; fewer than all where it is at its end or
  // broken.
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
  size_t digits_ = 0;  // or characters of an extension, of a line
};

}  // namespace lumen
