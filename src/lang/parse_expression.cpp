// Tokens and expressions of the parser; see parse.h. Precedences are in Power; docs/reference/language.md has the
// table.
#include <algorithm>
#include <array>

#include "lang/parse.h"
#include "lang/parser.h"

namespace lumen::lang {
namespace {

struct BinaryRow {
  std::string_view op;
  int power;
};
constexpr std::array<BinaryRow, 19> kBinary = {{{"or", kOr},
                                                {"and", kAnd},
                                                {"==", kCompare},
                                                {"!=", kCompare},
                                                {"<", kCompare},
                                                {"<=", kCompare},
                                                {">", kCompare},
                                                {">=", kCompare},
                                                {"|", kBitOr},
                                                {"^", kBitXor},
                                                {"&", kBitAnd},
                                                {"<<", kShift},
                                                {">>", kShift},
                                                {"+", kAdd},
                                                {"-", kAdd},
                                                {"*", kMultiply},
                                                {"/", kMultiply},
                                                {"%", kMultiply},
                                                {"**", kPower}}};

constexpr std::array<std::string_view, 8> kReductions = {"sum", "max", "min", "argmax", "argmin", "mean", "any", "all"};

bool is_subscriptable(ExprKind k) {
  return k == ExprKind::name || k == ExprKind::index || k == ExprKind::member || k == ExprKind::call ||
         k == ExprKind::list;
}

}  // namespace

int binary_power(std::string_view op) {
  for (const BinaryRow& row : kBinary)
    if (row.op == op) return row.power;
  return -1;
}

bool is_reduction(std::string_view name) {
  return std::find(kReductions.begin(), kReductions.end(), name) != kReductions.end();
}

// ---- tokens

void Parser::enter() {
  if (++nesting_ <= kMaxNesting) return;
  --nesting_;  // the guard's destructor does not run when its constructor throws
  fail(peek(), fmt::format("nested more than {} deep", kMaxNesting), "give parts of it names with 'let'");
}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& Parser::next() {
  const Token& t = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}

bool Parser::at_symbol(std::string_view s, size_t ahead) const {
  const Token& t = peek(ahead);
  return t.kind == TokenKind::symbol && t.text == s;
}

bool Parser::at_word(std::string_view s, size_t ahead) const {
  const Token& t = peek(ahead);
  return t.kind == TokenKind::name && t.text == s;
}

bool Parser::accept(std::string_view s) {
  if (!at_symbol(s) && !at_word(s)) return false;
  next();
  return true;
}

std::string Parser::describe(const Token& t) const {
  switch (t.kind) {
    case TokenKind::newline:
      return "the end of the line";
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::string:
      return "a string";
    default:
      return fmt::format("'{}'", t.text);
  }
}

void Parser::fail(const Token& t, const std::string& message, const std::string& hint) const {
  Place place = place_of(t);
  if (t.kind == TokenKind::newline || t.kind == TokenKind::end) {
    // Directly after the last word before the end of the line.
    auto i = static_cast<size_t>(&t - tokens_.data());
    while (i > 0 && (tokens_[i].kind == TokenKind::newline || tokens_[i].kind == TokenKind::end)) --i;
    place.begin = tokens_[i].end;
    place.end = place.begin + 1;
  }
  throw error_at(place, message, hint);
}

void Parser::expect(std::string_view symbol, std::string_view where, std::string_view hint) {
  if (accept(symbol)) return;
  fail(peek(), fmt::format("expected '{}' {}, found {}", symbol, where, describe(peek())), std::string(hint));
}

std::string Parser::expect_name(std::string_view what) {
  const Token& t = peek();
  if (t.kind != TokenKind::name) fail(t, fmt::format("expected {}, found {}", what, describe(t)));
  if (is_reserved(t.text))
    fail(t, fmt::format("expected {}, found the word '{}'", what, t.text),
         "this word belongs to the language: choose another name");
  return next().text;
}

void Parser::skip_newlines() {
  while (at_kind(TokenKind::newline)) next();
}

void Parser::end_of_member(std::string_view what) {
  if (at_symbol("}") || at_kind(TokenKind::end)) return;
  if (!at_kind(TokenKind::newline) && !at_symbol(";"))
    fail(peek(), fmt::format("expected the end of {}, found {}", what, describe(peek())), "a new line or ';' ends it");
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
}

Place Parser::place_from(uint32_t begin) const {
  const uint32_t end = at_ == 0 ? begin : tokens_[at_ - 1].end;
  return {source_, begin, std::max(begin, end)};
}

// ---- expressions

Expr Parser::start(ExprKind kind) {
  Expr e;
  e.kind = kind;
  return e;
}

ExprPtr Parser::make(Expr e, uint32_t begin) const {
  e.place = place_from(begin);
  for (const ExprPtr& a : e.args)
    if (a) e.height = std::max(e.height, a->height + 1);
  if (e.outside) e.height = std::max(e.height, e.outside->height + 1);
  for (const auto& [lo, hi] : e.ranges)
    for (const ExprPtr& r : {lo, hi})
      if (r) e.height = std::max(e.height, r->height + 1);
  if (e.height > kMaxHeight)
    throw error_at(e.place, fmt::format("this expression has more than {} levels", kMaxHeight),
                   "give parts of it names with 'let'");
  return std::make_shared<const Expr>(std::move(e));
}

ExprPtr Parser::whole_expression() {
  skip_newlines();
  ExprPtr e = expression();
  skip_newlines();
  if (!at_kind(TokenKind::end))
    fail(peek(), fmt::format("expected the end of the expression, found {}", describe(peek())));
  return e;
}

ExprPtr Parser::expression() {
  const Nesting guard(*this);
  return binary(kChoose);
}

ExprPtr Parser::binary(int least) {
  const uint32_t begin = peek().begin;
  ExprPtr left = prefix();
  bool compared = false;
  while (true) {
    const Token& t = peek();
    if (t.kind != TokenKind::symbol && t.kind != TokenKind::name) return left;
    const int power = binary_power(t.text);
    if (power < 0 || power < least) return left;
    if (power == kCompare) {
      if (compared) fail(t, "comparisons cannot be chained", "write 'a < b and b < c'");
      compared = true;
    } else if (power < kCompare) {
      compared = false;
    }
    Expr e = start(ExprKind::binary);
    e.text = next().text;
    skip_newlines();
    ExprPtr right;
    if (power == kPower) {
      const Nesting guard(*this);
      right = binary(kPower);  // a ** b ** c is a ** (b ** c)
    } else {
      right = binary(power + 1);
    }
    e.args = {left, right};
    left = make(std::move(e), begin);
  }
}

ExprPtr Parser::prefix() {
  const Token& t = peek();
  const uint32_t begin = t.begin;
  if (at_symbol("-") || at_symbol("~") || at_word("not")) {
    const Nesting guard(*this);
    Expr e = start(ExprKind::unary);
    e.text = next().text;
    e.args = {binary(kUnary)};
    return make(std::move(e), begin);
  }
  if (at_word("if")) {
    const Nesting guard(*this);
    next();
    return choose(begin);
  }
  if (reduction_ahead()) return reduction();
  return postfix();
}

ExprPtr Parser::choose(uint32_t begin) {
  ExprPtr condition = expression();
  if (!at_word("then"))
    fail(peek(), fmt::format("expected 'then' after the condition, found {}", describe(peek())),
         "a choice between values is written 'if c then a else b'");
  return choose_tail(begin, std::move(condition));
}

ExprPtr Parser::choose_tail(uint32_t begin, ExprPtr condition) {
  next();
  skip_newlines();
  Expr e = start(ExprKind::choose);
  ExprPtr yes = expression();
  skip_newlines();
  expect("else", "in the choice", "a choice between values has both branches: 'if c then a else b'");
  skip_newlines();
  e.args = {std::move(condition), std::move(yes), expression()};
  return make(std::move(e), begin);
}

// Lookahead for name '(' items ')' start-of-expression, where the items are names or `name in a..b`.
bool Parser::reduction_ahead() const {
  if (!at_kind(TokenKind::name) || !is_reduction(peek().text) || !at_symbol("(", 1)) return false;
  const size_t close = peek(1).partner;
  const Token& behind = tokens_[close + 1];
  const std::string& word = behind.text;
  if (behind.kind == TokenKind::name) {
    const bool ends = word != "not" && word != "if" && (is_reserved(word) || word == "step");
    if (ends || (in_layout_ && (word == "byte" || word == "bit" || word == "bits"))) return false;
  } else if (behind.kind != TokenKind::number && behind.kind != TokenKind::string) {
    if (behind.kind != TokenKind::symbol || (word != "(" && word != "~")) return false;
  }
  // Each item is a name followed by ',' or ')' or 'in'.
  size_t i = at_ + 2;
  while (true) {
    if (tokens_[i].kind != TokenKind::name || is_reserved(tokens_[i].text)) return false;
    ++i;
    if (tokens_[i].kind == TokenKind::name && tokens_[i].text == "in") {
      while (i < close && !(tokens_[i].kind == TokenKind::symbol && tokens_[i].text == ","))
        i = tokens_[i].partner > i ? tokens_[i].partner : i + 1;
    }
    if (i >= close) return true;
    if (tokens_[i].kind != TokenKind::symbol || tokens_[i].text != ",") return false;
    ++i;
  }
}

ExprPtr Parser::reduction() {
  const Nesting guard(*this);
  const uint32_t begin = peek().begin;
  Expr e = start(ExprKind::reduce);
  e.text = next().text;
  next();
  while (true) {
    const Token& name = peek();
    e.vars.push_back(expect_name("an index name"));
    if (std::count(e.vars.begin(), e.vars.end(), e.vars.back()) > 1)
      fail(name, fmt::format("index '{}' is named twice in one reduction", name.text));
    ExprPtr from, to;
    if (accept("in")) {
      from = expression();
      expect("..", "in the range", "a range is written 'a..b' and leaves out b");
      to = expression();
    }
    e.ranges.emplace_back(std::move(from), std::move(to));
    if (!accept(",")) break;
  }
  expect(")", "after the indices of the reduction");
  e.args = {binary(kMultiply)};
  return make(std::move(e), begin);
}

ExprPtr Parser::postfix() {
  const uint32_t begin = peek().begin;
  ExprPtr e = primary();
  while (true) {
    if (at_symbol("(") && e->kind == ExprKind::name && (!in_layout_ || peek().begin == e->place.end)) {
      e = call(std::move(e));
    } else if (at_symbol("[") && is_subscriptable(e->kind)) {
      e = index(std::move(e));
    } else if (at_symbol(".")) {
      next();
      Expr m = start(ExprKind::member);
      m.text = expect_name("a member's name after '.'");
      m.args = {std::move(e)};
      e = make(std::move(m), begin);
    } else {
      return e;
    }
  }
}

ExprPtr Parser::primary() {
  const Token& t = peek();
  const uint32_t begin = t.begin;
  if (t.kind == TokenKind::number) {
    const Token& behind = peek(1);
    if (behind.kind == TokenKind::name && behind.begin == t.end)
      throw error_at({source_, t.begin, behind.end}, fmt::format("'{}{}' is not a number", t.text, behind.text),
                     "a name cannot start with a digit; a product is written with '*'");
    Expr e = start(ExprKind::number);
    e.number = t.number;
    e.integer = t.integer;
    e.is_integer = t.is_integer;
    next();
    return make(std::move(e), begin);
  }
  if (t.kind == TokenKind::string) {
    Expr e = start(ExprKind::string);
    e.text = next().text;
    return make(std::move(e), begin);
  }
  if (t.kind == TokenKind::name) {
    Expr e = start(ExprKind::name);
    e.text = expect_name("a value");
    return make(std::move(e), begin);
  }
  if (at_symbol("(")) {
    next();
    ExprPtr e = expression();
    expect(")", "after the expression",
           at_symbol(",") ? "several values are written without brackets: 'return a, b'" : "");
    return e;
  }
  if (at_symbol("[")) {
    next();
    Expr e = start(ExprKind::list);
    while (!at_symbol("]")) {
      e.args.push_back(expression());
      if (!accept(",")) break;
    }
    expect("]", "at the end of the list");
    return make(std::move(e), begin);
  }
  if (at_symbol("=")) fail(t, "expected a value, found '='", "equality is written '=='");
  fail(t, fmt::format("expected a value, found {}", describe(t)));
}

ExprPtr Parser::call(ExprPtr callee) {
  Expr e = start(ExprKind::call);
  e.text = callee->text;
  next();
  bool keywords = false;
  while (!at_symbol(")")) {
    std::string keyword;
    if (at_kind(TokenKind::name) && at_symbol("=", 1)) {
      keyword = expect_name("a parameter's name");
      if (std::find(e.names.begin(), e.names.end(), keyword) != e.names.end())
        fail(tokens_[at_ - 1], fmt::format("'{}' is given twice", keyword));
      next();
      keywords = true;
    } else if (keywords) {
      fail(peek(), "a positional argument cannot follow a named one", "put it before the named ones, or name it");
    }
    e.names.push_back(std::move(keyword));
    e.args.push_back(expression());
    if (!accept(",")) break;
  }
  expect(")", fmt::format("after the arguments of '{}'", e.text), "arguments are separated by ','");
  return make(std::move(e), callee->place.begin);
}

ExprPtr Parser::index(ExprPtr base) {
  const uint32_t begin = base->place.begin;
  Expr e = start(ExprKind::index);
  e.args.push_back(std::move(base));
  next();
  while (!at_symbol("]")) {
    e.args.push_back(subscript());
    if (!accept(",")) break;
  }
  if (e.args.size() == 1) fail(peek(), "a subscript is missing", "all of an axis is written ':'");
  if (accept(";")) e.outside = expression();
  expect("]", "after the subscripts");
  return make(std::move(e), begin);
}

ExprPtr Parser::subscript() {
  const uint32_t begin = peek().begin;
  ExprPtr from;
  if (!at_symbol(":")) {
    from = expression();
    if (!at_symbol(":")) return from;
  }
  next();
  Expr e = start(ExprKind::slice);
  e.args = {from, at_symbol(",") || at_symbol("]") ? nullptr : expression()};
  return make(std::move(e), begin);
}

TypeExpr Parser::type() {
  const Nesting guard(*this);
  const uint32_t begin = peek().begin;
  TypeExpr t;
  t.is_state = at_word("state") && at_kind(TokenKind::name, 1);
  if (t.is_state) next();
  t.name = expect_name("a type");
  if (accept("<")) {
    do {
      skip_newlines();
      if (at_word("fn")) {  // a kind of small float, although 'fn' is a reserved word elsewhere
        const uint32_t word = peek().begin;
        Expr e = start(ExprKind::name);
        e.text = next().text;
        t.params.push_back(make(std::move(e), word));
      } else {
        t.params.push_back(binary(kAdd));  // looser operators would consume the '>'
      }
      skip_newlines();
    } while (accept(","));
    expect(">", "after the type's parameters", "comparisons and shifts inside '<...>' need brackets");
  }
  if (accept("[")) {
    t.has_dims = true;
    if (accept("...")) {
      t.leading_any = true;
      // `...B, T` names the leading extents B; `..., D` leaves them unnamed.
      if (at_kind(TokenKind::name) && (at_symbol(",", 1) || at_symbol("]", 1))) t.leading_name = expect_name("a name");
      accept(",");
    }
    while (!at_symbol("]")) {
      if (at_symbol("...")) fail(peek(), "'...' may only come first in a shape");
      t.dims.push_back(expression());
      if (!accept(",")) break;
    }
    expect("]", "after the shape", "extents are separated by ','");
  }
  t.place = place_from(begin);
  return t;
}

ExprPtr parse_expression(SourceRef source) {
  return Parser(std::move(source)).whole_expression();
}

}  // namespace lumen::lang
