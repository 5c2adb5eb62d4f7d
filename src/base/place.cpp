#include "base/place.h"

#include <algorithm>

namespace lumen {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

LineColumn line_column(const Place& place) {
  LineColumn at;
  if (!place.source) return at;
  const std::string& text = place.source->text;
  const size_t stop = std::min<size_t>(place.begin, text.size());
  for (size_t i = 0; i < stop; ++i) {
    if (text[i] == '\n') {
      ++at.line;
      at.column = 1;
    } else if (!is_continuation(text[i])) {
      ++at.column;
    }
  }
  return at;
}

std::string render_diagnostic(const Place& place, std::string_view message, std::string_view hint) {
  std::string out;
  if (!place.source) {
    out = fmt::format("error: {}", message);
  } else {
    const std::string& text = place.source->text;
    const LineColumn at = line_column(place);
    const size_t begin = std::min<size_t>(place.begin, text.size());
    const size_t before = begin == 0 ? std::string::npos : text.rfind('\n', begin - 1);
    const size_t first = before == std::string::npos ? 0 : before + 1;
    const size_t last = std::min(text.find('\n', begin), text.size());
    const size_t end = std::clamp<size_t>(place.end, begin + 1, std::max(last, begin + 1));
    // Long lines are cut so that a hostile file cannot flood the terminal.
    constexpr size_t kMaxLine = 160;
    const size_t from = begin - first > kMaxLine / 2 ? begin - kMaxLine / 2 : first;
    std::string line(text, from, std::min(last - std::min(from, last), kMaxLine));
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    out = fmt::format("{}:{}:{}: error: {}\n    {}\n    ", place.source->name, at.line, at.column, message, line);
    for (size_t i = from; i < begin; ++i)
      if (!is_continuation(text[i])) out += ' ';
    out += '^';
    for (size_t i = begin + 1; i < std::min(end, from + kMaxLine); ++i) out += '~';
  }
  if (!hint.empty()) out += fmt::format("\n  hint: {}", hint);
  return out;
}

Error error_at(const Place& place, std::string_view message, std::string_view hint) {
  return Error(Exit::user, render_diagnostic(place, message, hint));
}

}  // namespace lumen
