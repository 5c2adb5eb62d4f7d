// Any bytes as requests of HTTP: a head that is taken can be read in one way only, and what it says of its body is what
// any other reader of it would find. The first byte says where the bytes are parted.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/http/http.h"
#include "tests/fuzz/mutators/http.h"

namespace {

size_t occurrences(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

void check_head(const lumen::HttpHead& head, size_t most) {
  LUMEN_CHECK((head.status == 0) == (head.message.empty() || head.status == 0));
  if (head.status != 0) {
    LUMEN_CHECK(head.status >= 400 && head.status < 500 && !head.message.empty());
    return;
  }
  const std::string_view text = head.text;
  LUMEN_CHECK(text.ends_with("\r\n\r\n") && text.find("\r\n\r\n") == text.size() - 4);
  LUMEN_CHECK(occurrences(text, "\n") == occurrences(text, "\r\n") &&
              occurrences(text, "\r") == occurrences(text, "\r\n"));
  LUMEN_CHECK(text.find('\0') == std::string_view::npos && head.length <= most);
  std::string lower;
  for (const char c : text) lower += c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  const size_t lengths = occurrences(lower, "\r\ncontent-length:"),
               codings = occurrences(lower, "\r\ntransfer-encoding:");
  LUMEN_CHECK(lengths + codings <= 1 && (codings == 1) == head.is_chunked);
  LUMEN_CHECK(head.length == 0 || lengths == 1);
  const lumen::HttpHead again = lumen::read_http_head(text, most);
  LUMEN_CHECK(again.status == 0 && again.text == head.text && again.length == head.length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = all.find("\r\n\r\n");
  if (end != std::string_view::npos) check_head(read_http_head(all.substr(0, end + 4), 1 << 20), 1 << 20);
  const std::string_view body = end == std::string_view::npos ? all : all.substr(end + 4);
  // The same in one piece and in two.
  ChunkedBody whole, parts;
  const size_t taken = whole.take(body), first = std::min<size_t>(data[0], body.size());
  size_t by_parts = parts.take(body.substr(0, first));
  if (by_parts == first) by_parts += parts.take(body.substr(first));
  LUMEN_CHECK(taken == by_parts && taken <= body.size());
  LUMEN_CHECK(whole.has_ended() == parts.has_ended() && whole.is_broken() == parts.is_broken());
  if (whole.has_ended()) LUMEN_CHECK(body.substr(0, taken).ends_with("\r\n\r\n"));
  return 0;
}

FUZZ_MUTATOR(mutators::change_http, 1)
