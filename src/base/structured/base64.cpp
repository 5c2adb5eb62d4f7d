#include "base/structured/base64.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace lumen {

std::string decode_base64(std::string_view text, const std::string& where) {
  std::string out;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                  : c >= 'a' && c <= 'z' ? c - 'a' + 26
                  : c >= '0' && c <= '9' ? c - '0' + 52
                  : c == '+'             ? 62
                  : c == '/'             ? 63
                                         : -1;
    if (v < 0) throw user_error("{}: a character outside of base64", where);
    held = held << 6 | v;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += char(held >> bits & 0xff);
    }
  }
  return out;
}

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t held = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) held = held << 8 | (k < n ? uint8_t(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[held >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace lumen
