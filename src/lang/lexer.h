// Text to tokens. Newlines are tokens except inside ( ) and [ ]. Brackets are matched here, so the parser never sees an
// unbalanced one, and a missing bracket is reported at its opening. Must not depend on: grammar beyond brackets. Proved
// by tests/lang/lexer_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/place.h"

namespace lumen::lang {

enum class TokenKind : uint8_t { name, number, string, symbol, newline, end };

struct Token {
  TokenKind kind = TokenKind::end;
  uint32_t begin = 0, end = 0;  // bytes in the source
  std::string text;             // name, symbol, or the string with escapes resolved
  double number = 0;
  int64_t integer = 0;
  bool is_integer = false;
  uint32_t partner = 0;  // brackets: index of the other one
};

// Limits: longer texts, or texts with more tokens, are refused.
constexpr size_t kMaxSourceBytes = size_t{4} << 20;
constexpr size_t kMaxTokens = size_t{1} << 18;

// Ends with one `end` token. Error for invalid characters, unterminated strings and unbalanced brackets.
std::vector<Token> tokenize(const SourceRef& source);

// Reserved words cannot be names of values.
bool is_reserved(std::string_view word);

}  // namespace lumen::lang
