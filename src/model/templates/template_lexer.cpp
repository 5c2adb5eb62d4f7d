#include "model/templates/template_lexer.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "model/templates/template_value.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

using Token = TemplateToken;

class Lexer {
 public:
  Lexer(const std::string& text, SourceRef source) : text_(text), source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    put(Token::Kind::end, "", text_.size());
    return std::move(tokens_);
  }

 private:
  Error wrong(size_t at, const std::string& what, const std::string& hint = {}) const {
    const uint32_t begin = at;
    return error_at({source_, begin, begin + 1}, what, hint);
  }
  void put(Token::Kind kind, std::string text, size_t at) { tokens_.push_back({kind, std::move(text), at}); }
  bool here(std::string_view what, size_t at) const { return std::string_view(text_).substr(at).starts_with(what); }

  size_t white_behind(size_t at) const {
    for (char32_t c; at < text_.size();) {
      const size_t n = text::utf8_char(text_, at, &c);
      if (n == 0 || !is_python_space(c)) break;
      at += n;
    }
    return at;
  }

  static std::string_view right_stripped(std::string_view text) {
    while (!text.empty()) {
      size_t begin = text.size() - 1;
      while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
      char32_t c;
      if (text::utf8_char(text, begin, &c) != text.size() - begin || !is_python_space(c)) break;
      text.remove_suffix(text.size() - begin);
    }
    return text;
  }

  // Reads text up to the next tag, and that tag.
  void data() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        if (at_ < text_.size()) put(Token::Kind::text, text_.substr(at_), at_);
        at_ = text_.size();
        return;
      }
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
    }
    const char kind = text_[tag + 1];
    std::string_view before = std::string_view(text_).substr(at_, tag - at_);
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    if (sign == '-') {
      before = right_stripped(before);
    } else if (sign != '+' && kind != '{') {
      const size_t line = before.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && right_stripped(before.substr(line)).empty()) before = before.substr(0, line);
    }
    if (!before.empty()) put(Token::Kind::text, std::string(before), at_);
    at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') {
      comment(tag);
    } else if (kind == '{') {
      put(Token::Kind::open_print, "{{", tag);
      inside("}}", tag);
    } else if (!raw(tag)) {
      put(Token::Kind::open_block, "{%", tag);
      inside("%}", tag);
    }
  }

  // Applies white space control after the end of a tag.
  void after(size_t close, bool minus, bool plus, bool block) {
    at_ = close + 2;
    line_starts_ = false;
    if (minus) {
      const size_t from = at_;
      at_ = white_behind(at_);
      line_starts_ = at_ > from && text_[at_ - 1] == '\n';
    } else if (block && !plus && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
      line_starts_ = true;
    }
  }

  void comment(size_t tag) {
    const size_t close = text_.find("#}", at_);
    if (close == std::string::npos) throw wrong(tag, "an unterminated comment", "#}");
    after(close, close > at_ && text_[close - 1] == '-', close > at_ && text_[close - 1] == '+', true);
  }

  // {% raw %} ... {% endraw %}
  bool raw(size_t tag) {
    size_t at = white_behind(at_);
    if (!here("raw", at)) return false;
    at = white_behind(at + 3);
    const bool minus = here("-%}", at), plus = here("+%}", at);
    if (!minus && !plus && !here("%}", at)) return false;
    after(at + (minus || plus ? 1 : 0), minus, plus, true);
    const size_t begin = at_;
    for (size_t end = text_.find("{%", begin); end != std::string::npos; end = text_.find("{%", end + 1)) {
      size_t p = end + 2;
      const bool strip = here("-", p), keep = here("+", p);
      p = white_behind(p + (strip || keep ? 1 : 0));
      if (!here("endraw", p)) continue;
      p = white_behind(p + 6);
      const bool minus_end = here("-%}", p), plus_end = here("+%}", p);
      if (!minus_end && !plus_end && !here("%}", p)) continue;
      std::string_view inside = std::string_view(text_).substr(begin, end - begin);
      if (strip) {
        inside = right_stripped(inside);
      } else if (!keep) {
        const size_t line = inside.rfind('\n') + 1;
        if (line > 0 && right_stripped(inside.substr(line)).empty()) inside = inside.substr(0, line);
      }
      if (!inside.empty()) put(Token::Kind::text, std::string(inside), begin);
      after(p + (minus_end || plus_end ? 1 : 0), minus_end, plus_end, true);
      return true;
    }
    throw wrong(tag, "an unterminated raw block", "{% endraw %}");
  }

  void inside(std::string_view close, size_t tag) {
    const bool block = close == "%}";
    int depth = 0;
    for (;;) {
      at_ = white_behind(at_);
      if (at_ >= text_.size()) throw wrong(tag, "an unterminated tag", std::string(close));
      for (const char sign : {'-', '+'}) {
        if (depth == 0 && text_[at_] == sign && here(close, at_ + 1) && (sign == '-' || block)) {
          put(block ? Token::Kind::close_block : Token::Kind::close_print, std::string(close), at_);
          return after(at_ + 1, sign == '-', sign == '+', block);
        }
      }
      if (depth == 0 && here(close, at_)) {
        put(block ? Token::Kind::close_block : Token::Kind::close_print, std::string(close), at_);
        return after(at_, false, false, block);
      }
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        string(c);
      } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
        number();
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
        size_t end = at_;
        while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
          ++end;
        put(Token::Kind::name, text_.substr(at_, end - at_), at_);
        at_ = end;
      } else {
        constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                               ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|"};
        const auto found = std::find_if(std::begin(kSigns), std::end(kSigns), [&](auto s) { return here(s, at_); });
        if (found == std::end(kSigns)) throw wrong(at_, "an unexpected character");
        if (*found == "(" || *found == "[" || *found == "{") ++depth;
        if (*found == ")" || *found == "]" || *found == "}") --depth;
        put(Token::Kind::sign, std::string(*found), at_);
        at_ += found->size();
      }
    }
  }

  void number() {
    const size_t begin = at_;
    std::string digits;
    const auto take = [&] {
      while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
        if (text_[at_] != '_') digits += text_[at_];
        ++at_;
      }
    };
    take();
    bool whole = true;
    const auto digit = [&](size_t i) {
      return i < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i])) != 0;
    };
    if (at_ < text_.size() && text_[at_] == '.' && digit(at_ + 1)) {
      whole = false;
      digits += text_[at_++];
      take();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const size_t sign = at_ + 1 < text_.size() && (text_[at_ + 1] == '+' || text_[at_ + 1] == '-') ? 1 : 0;
      if (digit(at_ + 1 + sign)) {
        whole = false;
        digits += text_.substr(at_, 1 + sign);
        at_ += 1 + sign;
        take();
      }
    }
    put(whole ? Token::Kind::integer : Token::Kind::number, digits, begin);
  }

  void string(char mark) {
    const size_t begin = at_++;
    std::string out;
    const auto hex = [&](size_t digits) {
      uint32_t value = 0;
      for (size_t i = 0; i < digits; ++i, ++at_) {
        const int d = at_ < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[at_])) != 0
                          ? static_cast<int>(std::strtol(text_.substr(at_, 1).c_str(), nullptr, 16))
                          : -1;
        if (d < 0) throw wrong(at_, "a hexadecimal digit is missing");
        value = value * 16 + d;
      }
      if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) throw wrong(begin, "the escape is not a character");
      text::utf8_append(out, value);
    };
    for (;;) {
      if (at_ >= text_.size()) throw wrong(begin, "an unterminated string");
      const char c = text_[at_++];
      if (c == mark) break;
      if (c != '\\' || at_ >= text_.size()) {
        out += c;
        continue;
      }
      const char e = text_[at_++];
      switch (e) {
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'v':
          out += '\v';
          break;
        case 'a':
          out += '\a';
          break;
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          out += e;
          break;
        case 'x':
          hex(2);
          break;
        case 'u':
          hex(4);
          break;
        case 'U':
          hex(8);
          break;
        default:
          if (e >= '0' && e <= '7') {
            uint32_t value = e - '0';
            for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
              value = value * 8 + (text_[at_++] - '0');
            text::utf8_append(out, value);
          } else {
            out += {'\\', e};
          }
      }
    }
    put(Token::Kind::string, std::move(out), begin);
  }

  const std::string& text_;
  SourceRef source_;
  size_t at_ = 0;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string template_lines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<TemplateToken> template_tokens(const SourceRef& source) {
  return Lexer(source->text, source).run();
}

}  // namespace lumen::model::templates
