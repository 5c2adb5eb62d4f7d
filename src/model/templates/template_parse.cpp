#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/place.h"
#include "model/templates/template_lexer.h"
#include "model/templates/template_tree.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

using Expression = TemplateExpression;
using ExpressionRef = TemplateExpressionRef;
using Node = TemplateNode;
using Token = TemplateToken;

constexpr size_t kLongest = size_t{1} << 20;
constexpr int kDeepest = 120;

class Parser {
 public:
  Parser(std::vector<Token> tokens, SourceRef source) : tokens_(std::move(tokens)), source_(std::move(source)) {}

  std::vector<Node> run() { return body({}, nullptr); }
  bool has_answers() const { return has_answers_; }

 private:
  Error wrong(const Token& t, const std::string& what, const std::string& hint = {}) const {
    const uint32_t begin = t.at;
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

  // Nodes up to a block whose name is one of `ends`; that name is the current token then.
  std::vector<Node> body(const std::vector<std::string_view>& ends, const Token* opener) {
    const Deeper deeper(*this);
    std::vector<Node> out;
    for (;;) {
      const Token& t = now();
      if (t.kind == Token::Kind::end) {
        if (opener) throw wrong(*opener, fmt::format("'{}' is not closed", opener->text), std::string(ends.back()));
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
    if (t.text == "with") return with(t);
    if (t.text == "break" || t.text == "continue") {
      if (loops_ == 0) throw wrong(t, fmt::format("'{}' outside of a loop", t.text));
      close_block();
      return node(t.text == "break" ? Node::Kind::leave : Node::Kind::next, t.at);
    }
    if (t.text == "generation") {
      close_block();
      has_answers_ = true;
      Node n = node(Node::Kind::answer, t.at);
      n.body = body({"endgeneration"}, &t);
      ++at_;
      close_block();
      return n;
    }
    throw wrong(t, fmt::format("unknown statement '{}'", t.text),
                "chat templates support for, if, set, macro, call, filter, with, break, continue, generation and raw");
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
        throw wrong(now(), "a parameter without a default after one with");
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

  Node with(const Token& t) {
    Node n = node(Node::Kind::with, t.at);
    while (now().kind != Token::Kind::close_block) {
      if (!n.names.empty()) need_sign(",");
      ExpressionRef name = target();
      need_sign("=");
      n.names.emplace_back(std::move(name), expression(true));
    }
    close_block();
    n.body = body({"endwith"}, &t);
    ++at_;
    close_block();
    return n;
  }

  // An expression, or a tuple of several separated by commas.
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
    if (is_sign(",")) throw wrong(now(), "several subscripts are not supported");
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
        throw wrong(now(), "a positional argument after a named one");
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

  // Filters, tests and calls after an expression.
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
  bool has_answers_ = false;
};

}  // namespace

TemplateTree parse_template(std::string_view text, const std::string& name) {
  if (text.size() > kLongest) throw user_error("{}: a template of {} bytes is too long", name, text.size());
  if (text::utf8_valid_run(text, 0) != text.size()) throw user_error("{}: the template is not valid UTF-8", name);
  TemplateTree out;
  out.source = std::make_shared<const Source>(Source{name, template_lines(text)});
  Parser parser(template_tokens(out.source), out.source);
  out.body = parser.run();
  out.has_answers = parser.has_answers();
  return out;
}

}  // namespace lumen::model::templates
