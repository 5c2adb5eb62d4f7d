#include "model/text/unicode/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "model/text/unicode/code_set.h"

namespace lumen::model::text {

size_t utf8_char(std::string_view text, size_t at, char32_t* out) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t left = text.size() - at;
  if (left == 0) return 0;
  const unsigned char first = byte(at);
  if (first < 0x80) {
    *out = first;
    return 1;
  }
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < size) return 0;
  char32_t c = first & (0xff >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(at + i) & 0x3f);
  }
  constexpr char32_t kLeast[5] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[size] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
  *out = c;
  return size;
}

size_t utf8_valid_run(std::string_view text, size_t at) {
  const size_t begin = at;
  char32_t c;
  while (at < text.size()) {
    const size_t n = utf8_char(text, at, &c);
    if (n == 0) break;
    at += n;
  }
  return at - begin;
}

size_t utf8_invalid_run(std::string_view text, size_t at) {
  const size_t begin = at;
  char32_t c;
  while (at < text.size() && utf8_char(text, at, &c) == 0) ++at;
  return at - begin;
}

namespace {

// Length of the longest prefix of text[at..] that could begin a character, where there is no complete one; at least 1.
// `*open`: more bytes could complete it.
size_t broken_char(std::string_view text, size_t at, bool* open) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  *open = false;
  const unsigned char first = byte(at);
  if (first < 0xc2 || first > 0xf4) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned char low = 0x80, high = 0xbf;  // of the second byte
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  size_t n = 1;
  while (n < size && at + n < text.size() && byte(at + n) >= low && byte(at + n) <= high) {
    low = 0x80;
    high = 0xbf;
    ++n;
  }
  *open = at + n == text.size();
  return n;
}

}  // namespace

size_t utf8_unfinished_tail(std::string_view text) {
  const size_t begin = text.size() > 3 ? text.size() - 3 : 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0xc0) continue;
    char32_t c;
    bool open = false;
    if (utf8_char(text, at, &c) == 0 && broken_char(text, at, &open) == text.size() - at && open)
      return text.size() - at;
  }
  return 0;
}

void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::string utf8_repair(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t valid = utf8_valid_run(text, at);
    out.append(text.substr(at, valid));
    at += valid;
    if (at == text.size()) break;
    bool open = false;
    at += broken_char(text, at, &open);
    out += "\xef\xbf\xbd";
  }
  return out;
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t valid = utf8_valid_run(text, at);
    if (valid != 0) {
      utf8proc_uint8_t* mapped = nullptr;
      const utf8proc_ssize_t size =
          utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at), valid, &mapped,
                       static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (size < 0) throw user_error("cannot normalize a text: {}", utf8proc_errmsg(size));
      out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
      std::free(mapped);
      at += valid;
    }
    const size_t invalid = utf8_invalid_run(text, at);
    out.append(text.substr(at, invalid));
    at += invalid;
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  if (c == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_word_char(char32_t c) {
  return CodeSet::word().contains(c);
}

namespace {

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int, 0x144> bytes{};

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      chars[b] = itself ? static_cast<char32_t>(b) : next++;
      bytes[chars[b]] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

char32_t byte_to_alphabet(unsigned char byte) {
  return alphabet().chars[byte];
}

std::optional<unsigned char> alphabet_to_byte(char32_t c) {
  if (c >= alphabet().bytes.size() || alphabet().bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(alphabet().bytes[c]);
}

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) utf8_append(out, byte_to_alphabet(static_cast<unsigned char>(b)));
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t c;
    const size_t n = utf8_char(text, at, &c);
    if (n == 0) return std::nullopt;
    const auto byte = alphabet_to_byte(c);
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    at += n;
  }
  return out;
}

}  // namespace lumen::model::text
