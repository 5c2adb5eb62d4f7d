// UTF-8, NFC and the byte-level alphabet of vocabularies. Input is untrusted: every function accepts any bytes. Proved
// by tests/model/text/unicode_test.cpp.
//
// May include: base.
// Offers: code_set.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::model::text {

// Length (1 to 4) of the valid character at `at`, with its code point in `*out`; 0 when there is no valid character.
size_t utf8_char(std::string_view text, size_t at, char32_t* out);
// Number of valid / invalid UTF-8 bytes from `at` on.
size_t utf8_valid_run(std::string_view text, size_t at);
size_t utf8_invalid_run(std::string_view text, size_t at);
// Length of an incomplete character at the end; 0..3.
size_t utf8_unfinished_tail(std::string_view text);
void utf8_append(std::string& out, char32_t c);
// Maps a text: change(c, out) appends the replacement of a valid character; invalid bytes are kept.
template <typename Change>
std::string each_character(std::string_view text, const Change& change) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = utf8_char(text, at, &c);
    if (n == 0) {
      out += text[at++];
      continue;
    }
    change(c, out);
    at += n;
  }
  return out;
}
// Replaces each maximal invalid sequence by U+FFFD.
std::string utf8_repair(std::string_view text);

// Canonical decomposition, then composition. Invalid bytes are kept.
std::string normalize_nfc(std::string_view text);

bool is_white_space(char32_t c);  // Unicode White_Space
bool is_word_char(char32_t c);    // letters, marks, decimal digits, connectors

// The byte-level alphabet (as of GPT-2): each byte is one printable character; 0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF are
// themselves, the other 68 bytes are U+0100 and following.
char32_t byte_to_alphabet(unsigned char byte);
std::optional<unsigned char> alphabet_to_byte(char32_t c);
std::string to_alphabet(std::string_view bytes);
std::optional<std::string> from_alphabet(std::string_view text);  // nullopt for a character outside the alphabet

}  // namespace lumen::model::text
