#include "base/printable.h"

#include <fmt/format.h>

#include <cmath>

namespace lumen {
namespace {

// The character at `at` and its bytes; 0 bytes where there is no valid UTF-8.
size_t character(std::string_view text, size_t at, char32_t* out) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    *out = first;
    return 1;
  }
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + size > text.size()) return 0;
  char32_t c = first & (0xFFU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    c = (c << 6) | (byte(at + i) & 0x3FU);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[size] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
  *out = c;
  return size;
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// Line and paragraph separators, and characters that change the direction of the following text.
bool misleads(char32_t c) {
  return c == 0x2028 || c == 0x2029 || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escape(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return c < 0x80 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
                  : fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
}

template <typename Keep>
std::string escaped(std::string_view text, const Keep& keep) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t size = character(text, at, &c);
    if (size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    } else if (keep(c, at)) {
      out.append(text, at, size);
    } else {
      out += escape(c);
    }
    at += size == 0 ? 1 : size;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  return escaped(text, [&](char32_t c, size_t) {
    if (c == '\n' || c == '\t') return lines == Lines::kept;
    return !is_control(c) && !misleads(c);
  });
}

std::string as_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string harmless(std::string_view text) {
  return escaped(text, [&](char32_t c, size_t at) {
    if (c == '\r') return at + 1 < text.size() && text[at + 1] == '\n';
    return c == '\n' || c == '\t' || !is_control(c);
  });
}

std::string size_text(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  // A value that would round to 1024 of a unit is printed as one of the next.
  while (unit + 1 < std::size(kUnits) && std::abs(bytes) >= (unit == 0 ? 1023.5 : 1023.95)) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} {}", bytes, std::abs(bytes) == 1 ? "byte" : kUnits[0]);
  return fmt::format("{:.{}f} {}", bytes, std::abs(bytes) < 9.995 ? 2 : 1, kUnits[unit]);
}

}  // namespace lumen
