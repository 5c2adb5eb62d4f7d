// The lexer; see lexer.h.
#include "lang/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace lumen::lang {
namespace {

constexpr std::array<std::string_view, 14> kReserved = {"fn",   "let", "var", "for", "in",     "if",     "then",
                                                        "else", "and", "or",  "not", "return", "format", "model"};

// Longest match first.
constexpr std::array<std::string_view, 32> kSymbols = {"...", "**", "==", "!=", "<=", ">=", "<<", ">>", "..", "->", "+",
                                                       "-",   "*",  "/",  "%",  "<",  ">",  "=",  "|",  "^",  "&",  "~",
                                                       "(",   ")",  "[",  "]",  "{",  "}",  ",",  ":",  ";",  "."};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

char closing(char open) {
  return open == '(' ? ')' : open == '[' ? ']' : '}';
}

class Lexer {
 public:
  explicit Lexer(const SourceRef& source) : source_(source), text_(source->text) {}

  std::vector<Token> run() {
    if (text_.size() > kMaxSourceBytes)
      throw user_error("{}: the text has {} bytes, more than the {} a file of this language may have", source_->name,
                       text_.size(), kMaxSourceBytes);
    while (at_ < text_.size()) step();
    if (!open_.empty()) {
      const Token& t = tokens_[open_.back()];
      fail(t.begin, t.end, fmt::format("'{}' is never closed", t.text),
           fmt::format("add the matching '{}'", closing(t.text[0])));
    }
    add(TokenKind::newline, at_);
    add(TokenKind::end, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t begin, size_t end, const std::string& message, const std::string& hint = {}) {
    throw error_at(place(begin, end), message, hint);
  }
  Place place(size_t begin, size_t end) const {
    return {source_, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Token& add(TokenKind kind, size_t begin) {
    if (tokens_.size() >= kMaxTokens) fail(begin, begin + 1, "the text has too many words and symbols to be read");
    Token t;
    t.kind = kind;
    t.begin = begin;
    t.end = at_;
    tokens_.push_back(std::move(t));
    return tokens_.back();
  }

  void step() {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '\n') {
      newline();
    } else if (is_name_start(c)) {
      const size_t begin = at_;
      while (is_name_part(peek())) ++at_;
      add(TokenKind::name, begin).text = text_.substr(begin, at_ - begin);
    } else if (is_digit(c)) {
      number();
    } else if (c == '"') {
      string();
    } else {
      symbol();
    }
  }

  void newline() {
    const size_t begin = at_++;
    const bool inside = !open_.empty() && tokens_[open_.back()].text != "{";
    const bool again = tokens_.empty() || tokens_.back().kind == TokenKind::newline;
    if (!inside && !again) add(TokenKind::newline, begin);
  }

  void number() {
    const size_t begin = at_;
    const int base = peek() != '0' ? 10 : peek(1) == 'x' ? 16 : peek(1) == 'b' ? 2 : 10;
    if (base != 10 && digit_value(peek(2)) < base) return based_integer(base);
    std::string digits;
    const auto run = [&] {
      while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) {
        if (peek() != '_') digits += peek();
        ++at_;
      }
    };
    run();
    bool real = false;
    if (peek() == '.' && is_digit(peek(1))) {
      real = true;
      digits += '.';
      ++at_;
      run();
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if ((peek() == 'e' || peek() == 'E') && is_digit(peek(sign))) {
      real = true;
      digits += 'e';
      if (peek(1) == '-') digits += '-';
      at_ += sign;
      run();
    }
    Token& t = add(TokenKind::number, begin);
    t.text = text_.substr(begin, at_ - begin);
    t.is_integer = !real;
    const char* first = digits.data();
    const char* last = first + digits.size();
    if (!real && std::from_chars(first, last, t.integer).ec != std::errc())
      fail(begin, at_, "this integer does not fit into 64 bits", "write it as a real number, e.g. 1e20");
    const auto result = std::from_chars(first, last, t.number);
    // A number that underflows is zero; one that overflows is an error.
    if (result.ec == std::errc::result_out_of_range) {
      const size_t exponent = digits.find('e');
      if (exponent == std::string::npos || digits[exponent + 1] != '-')
        fail(begin, at_, "this number is too large", "the largest is about 1.8e308");
      t.number = 0;
    }
  }

  void based_integer(int base) {
    const size_t begin = at_;
    at_ += 2;
    uint64_t value = 0;
    while (digit_value(peek()) < base || (peek() == '_' && digit_value(peek(1)) < base)) {
      if (peek() != '_') {
        if (value > (uint64_t{INT64_MAX} - digit_value(peek())) / base)
          fail(begin, at_ + 1, "this integer does not fit into 63 bits");
        value = value * base + digit_value(peek());
      }
      ++at_;
    }
    Token& t = add(TokenKind::number, begin);
    t.text = text_.substr(begin, at_ - begin);
    t.is_integer = true;
    t.integer = value;
    t.number = value;
  }

  void string() {
    const size_t begin = at_++;
    std::string value;
    while (true) {
      if (at_ >= text_.size() || peek() == '\n')
        fail(begin, at_, "this string is never closed", "end it with \" on the same line; a line break is written \\n");
      const char c = text_[at_++];
      if (c == '"') break;
      if (c != '\\') {
        value += c;
        continue;
      }
      const char e = peek();
      if (e != '"' && e != '\\' && e != 'n' && e != 't')
        fail(at_ - 1, at_ + 1, "unknown escape in a string", "known are \\\" \\\\ \\n \\t");
      value += e == 'n' ? '\n' : e == 't' ? '\t' : e;
      ++at_;
    }
    add(TokenKind::string, begin).text = std::move(value);
  }

  void symbol() {
    const size_t begin = at_;
    const std::string_view rest = std::string_view(text_).substr(at_);
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [&](std::string_view s) { return rest.substr(0, s.size()) == s; });
    if (found == kSymbols.end()) {
      ++at_;
      while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80) ++at_;
      const std::string_view hint = rest[0] == '\''  ? "strings are written with \""
                                    : rest[0] == '!' ? "negation is written 'not'"
                                    : rest[0] == '?' ? "a choice is written 'if c then a else b'"
                                                     : "";
      fail(begin, at_, "this character has no meaning here", std::string(hint));
    }
    at_ += found->size();
    add(TokenKind::symbol, begin).text = *found;
    const uint32_t index = tokens_.size() - 1;
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_.push_back(index);
    } else if (c == ')' || c == ']' || c == '}') {
      close(index);
    }
  }

  void close(uint32_t index) {
    Token& t = tokens_[index];
    if (open_.empty())
      fail(t.begin, t.end, fmt::format("'{}' closes nothing", t.text), "remove it, or add the opening one");
    Token& o = tokens_[open_.back()];
    const char expected = closing(o.text[0]);
    if (t.text[0] != expected) {
      const LineColumn at = line_column(place(o.begin, o.end));
      fail(t.begin, t.end, fmt::format("expected '{}' before '{}'", expected, t.text),
           fmt::format("'{}' was opened at {}:{} and is still open", o.text, at.line, at.column));
    }
    o.partner = index;
    t.partner = open_.back();
    open_.pop_back();
  }

  SourceRef source_;
  const std::string& text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
  std::vector<uint32_t> open_;
};

}  // namespace

std::vector<Token> tokenize(const SourceRef& source) {
  return Lexer(source).run();
}

bool is_reserved(std::string_view word) {
  return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
}

}  // namespace lumen::lang
