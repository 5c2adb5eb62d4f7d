#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/place.h"
#include "model/text/template_tree.h"
#include "model/text/unicode.h"

namespace lumen::model {
namespace {

using Expression = TemplateExpression;
using ExpressionRef = TemplateExpressionRef;
using Node = TemplateNode;

constexpr size_t kLongest = size_t{1} << 20;
constexpr int kDeepest = 120;

struct Token {
  enum class Kind { text, open_print, close_print, open_block, close_block, name, string, integer, number, sign, end };
  Kind kind = Kind::end;
  std::string text;
  size_t at = 0;
};

// Lines end in \n, and one at the end of the text does not count.
std::string plain_lines(std::string_view text) {
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
    const auto begin = static_cast<uint32_t>(at);
    return error_at({source_, begin, begin + 1}, what, hint);
  }
  void put(Token::Kind kind, std::string text, size_t at) { tokens_.push_back({kind, std::move(text), at}); }
  bool here(std::string_view what, size_t at) const { return std::string_view(text_).substr(at).starts_with(what); }

  size_t white_behind(size_t at) const {
    for (char32_t c; at < text_.size();) {
      const size_t n = utf8_char(text_, at, &c);
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
      if (utf8_char(text, begin, &c) != text.size() - begin || !is_python_space(c)) break;
      text.remove_suffix(text.size() - begin);
    }
    return text;
  }

  // Text up to the next tag, and that tag.
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

  // Behind the closing of a tag: white space that goes with it.
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
    if (close == std::string::npos) throw wrong(tag, "a comment without its end", "#}");
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
    throw wrong(tag, "raw text without its end", "{% endraw %}");
  }

  void inside(std::string_view close, size_t tag) {
    const bool block = close == "%}";
    int depth = 0;
    for (;;) {
      at_ = white_behind(at_);
      if (at_ >= text_.size()) throw wrong(tag, "a tag without its end", std::string(close));
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
        if (found == std::end(kSigns)) throw wrong(at_, "a character that has no place here");
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
        value = value * 16 + static_cast<uint32_t>(d);
      }
      if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) throw wrong(begin, "an escape that is no character");
      utf8_append(out, value);
    };
    for (;;) {
      if (at_ >= text_.size()) throw wrong(begin, "a text without its end");
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
            uint32_t value = static_cast<uint32_t>(e - '0');
            for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
              value = value * 8 + static_cast<uint32_t>(text_[at_++] - '0');
            utf8_append(out, value);
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

class Parser {
 public:
  Parser(std::vector<Token> tokens, SourceRef source) : tokens_(std::move(tokens)), source_(std::move(source)) {}

  std::vector<Node> run() { return body({}, nullptr); }

 private:
  Error wrong(const Token& t, const std::string& what, const std::string& hint = {}) const {
    const auto begin = static_cast<uint32_t>(t.at);
    return error_at({source_, begin, begin + static_cast<uint32_t>(std::max<size_t>(1, t.text.size()))}, what, hint);
  }
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_sign(std::string_view s) const { return now().kind == Token::Kind::sign && now().text == s; }
  bool is_name(std::string_view s) const { return now().kind == Token::Kind::name && now().text == s; }
  bool take_sign(std::string_view s) {
    if (!is_sign(s)) return false;
    ++at_;
    return true;
  }
  bool take_name(std::string_view s) {
    if (!is_name(s)) return false;
    ++at_;
    return true;
  }
  void need_sign(std::string_view s) {
    if (!take_sign(s)) throw wrong(now(), fmt::format("expected '{}'", s));
  }
  void need_name(std::string_view s) {
    if (!take_name(s)) throw wrong(now(), fmt::format("expected '{}'", s));
  }
  std::string any_name() {
    if (now().kind != Token::Kind::name) throw wrong(now(), "expected a name");
    return tokens_[at_++].text;
  }
  void close_block() {
    if (now().kind != Token::Kind::close_block) throw wrong(now(), "expected the end of the tag", "%}");
    ++at_;
  }

  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++p.depth_ > kDeepest) throw p.wrong(p.now(), "the template is nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  ExpressionRef make(Expression::Kind kind, size_t at) {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->at = at;
    return e;
  }
  template <typename... Parts>
  ExpressionRef make(Expression::Kind kind, size_t at, std::string text, Parts... parts) {
    auto e = make(kind, at);
    e->text = std::move(text);
    (e->parts.push_back(std::move(parts)), ...);
    return e;
  }
  static Node node(Node::Kind kind, size_t at) {
    Node n;
    n.kind = kind;
    n.at = at;
    return n;
  }

  // Nodes up to a block whose name is one of `ends`, which is then the current token (behind the opening).
  std::vector<Node> body(const std::vector<std::string_view>& ends, const Token* opener) {
    const Deeper deeper(*this);
    std::vector<Node> out;
    for (;;) {
      const Token& t = now();
      if (t.kind == Token::Kind::end) {
        if (opener) throw wrong(*opener, fmt::format("'{}' without its end", opener->text), std::string(ends.back()));
        return out;
      }
      if (t.kind == Token::Kind::text) {
        out.push_back(node(Node::Kind::text, t.at));
        out.back().text = t.text;
        ++at_;
      } else if (t.kind == Token::Kind::open_print) {
        ++at_;
        out.push_back(node(Node::Kind::print, t.at));
        out.back().expression = tuple(true);
        if (now().kind != Token::Kind::close_print) throw wrong(now(), "expected the end of the expression", "}}");
        ++at_;
      } else {
        ++at_;
        if (now().kind != Token::Kind::name) throw wrong(now(), "expected the name of a statement");
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        out.push_back(statement());
      }
    }
  }

  Node statement() {
    const Token& t = tokens_[at_++];
    if (t.text == "for") return loop(t);
    if (t.text == "if") return branch(t);
    if (t.text == "set") return assignment(t);
    if (t.text == "macro") return macro(t);
    if (t.text == "call") return call(t);
    if (t.text == "filter") return filter(t);
    if (t.text == "break" || t.text == "continue") {
      if (loops_ == 0) throw wrong(t, fmt::format("'{}' outside of a loop", t.text));
      close_block();
      return node(t.text == "break" ? Node::Kind::leave : Node::Kind::next, t.at);
    }
    if (t.text == "generation") {
      close_block();
      Node n = node(Node::Kind::block, t.at);
      n.body = body({"endgeneration"}, &t);
      ++at_;
      close_block();
      return n;
    }
    throw wrong(t, fmt::format("unknown statement '{}'", t.text),
                "templates of chats have for, if, set, macro, call, filter, break, continue, generation and raw");
  }

  Node loop(const Token& t) {
    Node n = node(Node::Kind::loop, t.at);
    n.target = target();
    need_name("in");
    n.expression = tuple(false);
    if (take_name("if")) n.condition = expression(true);
    n.recursive = take_name("recursive");
    close_block();
    ++loops_;
    n.body = body({"else", "endfor"}, &t);
    --loops_;
    if (take_name("else")) {
      close_block();
      n.other = body({"endfor"}, &t);
    }
    need_name("endfor");
    close_block();
    return n;
  }

  Node branch(const Token& t) {
    const Deeper deeper(*this);
    Node n = node(Node::Kind::branch, t.at);
    n.expression = tuple(true);
    close_block();
    n.body = body({"elif", "else", "endif"}, &t);
    if (is_name("elif")) {
      const Token& again = tokens_[at_++];
      n.other.push_back(branch(again));
      return n;
    }
    if (take_name("else")) {
      close_block();
      n.other = body({"endif"}, &t);
    }
    need_name("endif");
    close_block();
    return n;
  }

  // a name, a, b, or space.name
  ExpressionRef target() {
    const Token& t = now();
    std::vector<ExpressionRef> parts;
    do {
      if (is_name("in") || now().kind == Token::Kind::close_block || is_sign("=")) break;
      if (take_sign("(")) {
        parts.push_back(target());
        need_sign(")");
        continue;
      }
      const size_t at = now().at;
      ExpressionRef one = make(Expression::Kind::name, at, any_name());
      if (take_sign(".")) one = make(Expression::Kind::member, at, any_name(), std::move(one));
      parts.push_back(std::move(one));
    } while (take_sign(","));
    if (parts.empty()) throw wrong(t, "expected a name");
    if (parts.size() == 1 && tokens_[at_ - 1].text != ",") return std::move(parts[0]);
    ExpressionRef out = make(Expression::Kind::tuple, t.at);
    out->parts = std::move(parts);
    return out;
  }

  Node assignment(const Token& t) {
    Node n = node(Node::Kind::set, t.at);
    n.target = target();
    if (take_sign("=")) {
      n.expression = tuple(true);
      close_block();
      return n;
    }
    n.kind = Node::Kind::capture;
    if (is_sign("|")) n.expression = filters(make(Expression::Kind::name, t.at, std::string()));
    close_block();
    n.body = body({"endset"}, &t);
    ++at_;
    close_block();
    return n;
  }

  std::vector<Node::Parameter> parameters() {
    std::vector<Node::Parameter> out;
    need_sign("(");
    while (!is_sign(")")) {
      if (!out.empty()) need_sign(",");
      Node::Parameter p;
      p.name = any_name();
      if (take_sign("=")) {
        p.fallback = expression(true);
      } else if (!out.empty() && out.back().fallback) {
        throw wrong(now(), "a parameter without a default behind one with");
      }
      out.push_back(std::move(p));
    }
    ++at_;
    return out;
  }

  Node macro(const Token& t) {
    Node n = node(Node::Kind::macro, t.at);
    n.text = any_name();
    n.parameters = parameters();
    close_block();
    const int loops = std::exchange(loops_, 0);
    n.body = body({"endmacro"}, &t);
    loops_ = loops;
    ++at_;
    close_block();
    return n;
  }

  Node call(const Token& t) {
    Node n = node(Node::Kind::call, t.at);
    if (is_sign("(")) n.parameters = parameters();
    n.expression = expression(true);
    if (n.expression->kind != Expression::Kind::call) throw wrong(t, "expected a call");
    close_block();
    const int loops = std::exchange(loops_, 0);
    n.body = body({"endcall"}, &t);
    loops_ = loops;
    ++at_;
    close_block();
    return n;
  }

  Node filter(const Token& t) {
    Node n = node(Node::Kind::filter, t.at);
    n.expression = named_filter(make(Expression::Kind::name, t.at, std::string()));
    n.expression = filters(std::move(n.expression));
    close_block();
    n.body = body({"endfilter"}, &t);
    ++at_;
    close_block();
    return n;
  }

  // One expression, or several with commas between: a tuple.
  ExpressionRef tuple(bool choices) {
    const size_t at = now().at;
    ExpressionRef first = expression(choices);
    if (!is_sign(",")) return first;
    ExpressionRef out = make(Expression::Kind::tuple, at);
    out->parts.push_back(std::move(first));
    while (take_sign(",")) {
      if (now().kind == Token::Kind::close_block || now().kind == Token::Kind::close_print || is_sign(")")) break;
      out->parts.push_back(expression(choices));
    }
    return out;
  }

  ExpressionRef expression(bool choices) {
    const Deeper deeper(*this);
    ExpressionRef out = either();
    while (choices && is_name("if")) {
      const size_t at = tokens_[at_++].at;
      ExpressionRef condition = either();
      ExpressionRef other = take_name("else") ? expression(true) : nullptr;
      out = make(Expression::Kind::choice, at, "", std::move(out), std::move(condition), std::move(other));
    }
    return out;
  }

  ExpressionRef either() {
    ExpressionRef left = both();
    while (is_name("or")) {
      const size_t at = tokens_[at_++].at;
      left = make(Expression::Kind::either, at, "", std::move(left), both());
    }
    return left;
  }
  ExpressionRef both() {
    ExpressionRef left = inverse();
    while (is_name("and")) {
      const size_t at = tokens_[at_++].at;
      left = make(Expression::Kind::both, at, "", std::move(left), inverse());
    }
    return left;
  }
  ExpressionRef inverse() {
    const Deeper deeper(*this);
    if (is_name("not")) {
      const size_t at = tokens_[at_++].at;
      return make(Expression::Kind::inverse, at, "", inverse());
    }
    return comparison();
  }

  ExpressionRef comparison() {
    ExpressionRef left = sum();
    ExpressionRef chain;
    for (;;) {
      const Token& t = now();
      std::string sign;
      if (t.kind == Token::Kind::sign &&
          (t.text == "==" || t.text == "!=" || t.text == "<" || t.text == "<=" || t.text == ">" || t.text == ">=")) {
        sign = t.text;
        ++at_;
      } else if (take_name("in")) {
        sign = "in";
      } else if (is_name("not") && ahead().kind == Token::Kind::name && ahead().text == "in") {
        sign = "not in";
        at_ += 2;
      } else {
        return chain ? std::move(chain) : std::move(left);
      }
      if (!chain) chain = make(Expression::Kind::comparison, t.at, "", std::move(left));
      chain->operators.push_back(std::move(sign));
      chain->parts.push_back(sum());
    }
  }

  ExpressionRef sum() {
    ExpressionRef left = joined();
    while (is_sign("+") || is_sign("-")) {
      const Token& t = tokens_[at_++];
      left = make(Expression::Kind::arithmetic, t.at, t.text, std::move(left), joined());
    }
    return left;
  }
  ExpressionRef joined() {
    ExpressionRef left = product();
    if (!is_sign("~")) return left;
    ExpressionRef out = make(Expression::Kind::joined, now().at, "", std::move(left));
    while (take_sign("~")) out->parts.push_back(product());
    return out;
  }
  ExpressionRef product() {
    ExpressionRef left = power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      const Token& t = tokens_[at_++];
      left = make(Expression::Kind::arithmetic, t.at, t.text, std::move(left), power());
    }
    return left;
  }
  ExpressionRef power() {
    ExpressionRef left = unary(true);
    while (is_sign("**")) {
      const Token& t = tokens_[at_++];
      left = make(Expression::Kind::arithmetic, t.at, t.text, std::move(left), unary(true));
    }
    return left;
  }

  ExpressionRef unary(bool with_filters) {
    const Deeper deeper(*this);
    const Token& t = now();
    ExpressionRef out;
    if (take_sign("-")) {
      out = make(Expression::Kind::negative, t.at, "", unary(false));
    } else if (take_sign("+")) {
      out = make(Expression::Kind::positive, t.at, "", unary(false));
    } else {
      out = primary();
    }
    out = postfix(std::move(out));
    return with_filters ? filters(std::move(out)) : std::move(out);
  }

  ExpressionRef constant(size_t at, Value value) {
    ExpressionRef out = make(Expression::Kind::constant, at);
    out->value = std::move(value);
    return out;
  }

  ExpressionRef primary() {
    const Token& t = now();
    switch (t.kind) {
      case Token::Kind::name:
        ++at_;
        if (t.text == "true" || t.text == "True") return constant(t.at, true);
        if (t.text == "false" || t.text == "False") return constant(t.at, false);
        if (t.text == "none" || t.text == "None") return constant(t.at, None{});
        return make(Expression::Kind::name, t.at, t.text);
      case Token::Kind::string: {
        std::string text;
        while (now().kind == Token::Kind::string) text += tokens_[at_++].text;
        return constant(t.at, std::move(text));
      }
      case Token::Kind::integer: {
        ++at_;
        int64_t value = 0;
        const auto end = std::from_chars(t.text.data(), t.text.data() + t.text.size(), value);
        if (end.ec != std::errc() || end.ptr != t.text.data() + t.text.size())
          throw wrong(t, "a number that is too large");
        return constant(t.at, value);
      }
      case Token::Kind::number:
        ++at_;
        return constant(t.at, std::strtod(t.text.c_str(), nullptr));
      default:
        break;
    }
    if (take_sign("(")) {
      if (take_sign(")")) return make(Expression::Kind::tuple, t.at);
      ExpressionRef inside = tuple(true);
      need_sign(")");
      return inside;
    }
    if (take_sign("[")) {
      ExpressionRef out = make(Expression::Kind::list, t.at);
      while (!is_sign("]")) {
        if (!out->parts.empty()) need_sign(",");
        if (is_sign("]")) break;
        out->parts.push_back(expression(true));
      }
      ++at_;
      return out;
    }
    if (take_sign("{")) {
      ExpressionRef out = make(Expression::Kind::table, t.at);
      while (!is_sign("}")) {
        if (!out->parts.empty()) need_sign(",");
        if (is_sign("}")) break;
        out->parts.push_back(expression(true));
        need_sign(":");
        out->parts.push_back(expression(true));
      }
      ++at_;
      return out;
    }
    throw wrong(t, "expected an expression");
  }

  ExpressionRef postfix(ExpressionRef out) {
    for (int n = 0;; ++n) {
      if (n > kDeepest) throw wrong(now(), "the expression is too long");
      const Token& t = now();
      if (take_sign(".")) {
        if (now().kind == Token::Kind::integer) {
          const Token& index = tokens_[at_++];
          out = make(Expression::Kind::item, t.at, "", std::move(out),
                     constant(index.at, static_cast<int64_t>(std::strtoll(index.text.c_str(), nullptr, 10))));
        } else {
          out = make(Expression::Kind::member, t.at, any_name(), std::move(out));
        }
      } else if (take_sign("[")) {
        out = subscript(std::move(out), t.at);
      } else if (is_sign("(")) {
        out = make(Expression::Kind::call, t.at, "", std::move(out));
        arguments(*out);
      } else {
        return out;
      }
    }
  }

  ExpressionRef subscript(ExpressionRef object, size_t at) {
    ExpressionRef from = is_sign(":") ? nullptr : expression(true);
    if (take_sign("]")) return make(Expression::Kind::item, at, "", std::move(object), std::move(from));
    if (is_sign(",")) throw wrong(now(), "several subscripts are not known here");
    need_sign(":");
    ExpressionRef to = is_sign(":") || is_sign("]") ? nullptr : expression(true), step;
    if (take_sign(":") && !is_sign("]")) step = expression(true);
    need_sign("]");
    return make(Expression::Kind::slice, at, "", std::move(object), std::move(from), std::move(to), std::move(step));
  }

  void arguments(Expression& out) {
    need_sign("(");
    bool first = true;
    while (!is_sign(")")) {
      if (!first) need_sign(",");
      first = false;
      if (is_sign(")")) break;
      Expression::Argument a;
      if (take_sign("*")) {
        a.spread = 1;
      } else if (take_sign("**")) {
        a.spread = 2;
      } else if (now().kind == Token::Kind::name && ahead().kind == Token::Kind::sign && ahead().text == "=") {
        a.name = any_name();
        ++at_;
      } else if (!out.arguments.empty() && !out.arguments.back().name.empty()) {
        throw wrong(now(), "an argument without a name behind one with");
      }
      a.value = expression(true);
      out.arguments.push_back(std::move(a));
    }
    ++at_;
  }

  ExpressionRef named_filter(ExpressionRef out) {
    const size_t at = now().at;
    std::string name = any_name();
    while (take_sign(".")) name += "." + any_name();
    out = make(Expression::Kind::filter, at, std::move(name), std::move(out));
    if (is_sign("(")) arguments(*out);
    return out;
  }

  // Filters, tests and calls behind an expression.
  ExpressionRef filters(ExpressionRef out) {
    for (int n = 0;; ++n) {
      if (n > kDeepest) throw wrong(now(), "the expression is too long");
      if (take_sign("|")) {
        out = named_filter(std::move(out));
      } else if (is_name("is")) {
        out = test(std::move(out));
      } else if (is_sign("(")) {
        out = make(Expression::Kind::call, now().at, "", std::move(out));
        arguments(*out);
      } else {
        return out;
      }
    }
  }

  ExpressionRef test(ExpressionRef out) {
    const size_t at = tokens_[at_++].at;
    const bool negative = take_name("not");
    std::string name = any_name();
    while (take_sign(".")) name += "." + any_name();
    out = make(Expression::Kind::test, at, std::move(name), std::move(out));
    if (is_sign("(")) {
      arguments(*out);
    } else {
      const Token& t = now();
      const bool value = t.kind == Token::Kind::name || t.kind == Token::Kind::string ||
                         t.kind == Token::Kind::integer || t.kind == Token::Kind::number || is_sign("[") ||
                         is_sign("{");
      if (value && !is_name("else") && !is_name("or") && !is_name("and")) {
        if (is_name("is")) throw wrong(t, "tests cannot be chained with is");
        Expression::Argument a;
        a.value = postfix(primary());
        out->arguments.push_back(std::move(a));
      }
    }
    return negative ? make(Expression::Kind::inverse, at, "", std::move(out)) : std::move(out);
  }

  std::vector<Token> tokens_;
  SourceRef source_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

TemplateTree parse_template(std::string_view text, const std::string& name) {
  if (text.size() > kLongest) throw user_error("{}: a template of {} bytes is too long", name, text.size());
  if (utf8_valid_run(text, 0) != text.size()) throw user_error("{}: the template is no UTF-8", name);
  TemplateTree out;
  out.source = std::make_shared<const Source>(Source{name, plain_lines(text)});
  out.body = Parser(Lexer(out.source->text, out.source).run(), out.source).run();
  return out;
}

}  // namespace lumen::model
