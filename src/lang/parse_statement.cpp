// Statements of the parser; see parse.h.
#include "lang/parse.h"

namespace lumen::lang {

Stmt Parser::start(StmtKind kind) {
  Stmt s;
  s.kind = kind;
  return s;
}

// '{' statements '}'. Names bound in a block go out of scope at its end.
std::vector<Stmt> Parser::block(std::string_view of) {
  const Nesting guard(*this);
  const Token& open = peek();
  expect("{", fmt::format("to open the body of {}", of),
         open.kind == TokenKind::newline ? "put the '{' on the same line" : "");
  const std::set<std::string> outer = bound_;
  std::vector<Stmt> out;
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
  while (!at_symbol("}")) {
    if (!out.empty() && out.back().kind == StmtKind::result)
      throw error_at(out.back().place, "nothing can follow a result, and this value is one",
                     "give the value a name with 'let', assign it, or move it to the end");
    out.push_back(statement());
    end_of_member("the statement");
  }
  next();
  bound_ = outer;
  return out;
}

Stmt Parser::statement() {
  const Nesting guard(*this);
  if (at_word("let")) return let_statement();
  if (at_word("var")) return var_statement();
  if (at_word("for")) return loop_statement();
  if (at_word("if")) return branch_statement();
  const uint32_t begin = peek().begin;
  if (at_word("return")) {
    Stmt s = start(StmtKind::result);
    next();
    do {
      skip_newlines();
      s.values.push_back(expression());
    } while (accept(","));
    s.place = place_from(begin);
    return s;
  }
  ExprPtr first = expression();
  return value_statement(std::move(first), begin);
}

// Called after the first expression of an assignment or a bare result.
Stmt Parser::value_statement(ExprPtr first, uint32_t begin) {
  std::vector<ExprPtr> parts = {std::move(first)};
  while (accept(",")) {
    skip_newlines();
    parts.push_back(expression());
  }
  Stmt s = start(StmtKind::result);
  if (!at_symbol("=")) {
    s.values = std::move(parts);
    s.place = place_from(begin);
    return s;
  }
  bool define = in_function_ && parts.size() == 1;
  for (const ExprPtr& p : parts) {
    const bool element = p->kind == ExprKind::index && p->args[0]->kind == ExprKind::name;
    if (p->kind != ExprKind::name && !element)
      throw error_at(p->place, "this cannot be assigned to",
                     "the left side of '=' is a name or name[...]; equality is written '=='");
    define = define && element && bound_.count(p->args[0]->text) == 0;
  }
  next();
  skip_newlines();
  s.kind = define ? StmtKind::define : StmtKind::assign;
  s.value = expression();
  s.targets = std::move(parts);
  for (const ExprPtr& t : s.targets) bind(t->kind == ExprKind::name ? t->text : t->args[0]->text);
  s.place = place_from(begin);
  return s;
}

Stmt Parser::let_statement() {
  const uint32_t begin = next().begin;
  Stmt s = start(StmtKind::let);
  if (accept("(")) {
    do {
      s.names.push_back(expect_name("a name to bind"));
    } while (accept(","));
    expect(")", "after the names", "several results are taken with 'let (a, b) = f(...)'");
  } else {
    s.names.push_back(expect_name("a name to bind"));
  }
  expect("=", "after the name", "a 'let' has a value: 'let x = ...'");
  skip_newlines();
  s.value = expression();
  for (const std::string& n : s.names) bind(n);
  s.place = place_from(begin);
  return s;
}

Stmt Parser::var_statement() {
  const uint32_t begin = next().begin;
  Stmt s = start(StmtKind::var);
  s.names.push_back(expect_name("a variable's name"));
  if (accept("[")) {
    s.extent = expression();
    expect("]", "after the extent of the array", "local arrays have one axis");
  }
  if (accept("=")) {
    skip_newlines();
    s.value = expression();
  } else if (!s.extent) {
    fail(peek(), fmt::format("variable '{}' has no first value", s.names[0]),
         "write 'var x = ...', or 'var x[n]' for an array");
  }
  bind(s.names[0]);
  s.place = place_from(begin);
  return s;
}

Stmt Parser::loop_statement() {
  const uint32_t begin = next().begin;
  Stmt s = start(StmtKind::loop);
  s.names.push_back(expect_name("the loop's variable"));
  expect("in", "after the loop's variable", "a loop is written 'for i in a..b { }'");
  s.from = expression();
  if (accept("..")) {
    s.to = expression();
    if (accept("step")) s.step = expression();
  } else if (s.from->kind != ExprKind::name || s.from->text != "layers") {
    fail(peek(), fmt::format("expected '..' in the loop's range, found {}", describe(peek())),
         "a loop is written 'for i in a..b { }', or 'for l in layers { }' inside a model");
  }
  const std::set<std::string> outer = bound_;
  bind(s.names[0]);
  s.body = block("the loop");
  bound_ = outer;
  s.place = place_from(begin);
  return s;
}

Stmt Parser::branch_statement() {
  const uint32_t begin = next().begin;
  ExprPtr condition = expression();
  if (at_word("then")) return value_statement(choose_tail(begin, std::move(condition)), begin);
  return branch_tail(begin, std::move(condition));
}

Stmt Parser::branch_tail(uint32_t begin, ExprPtr condition) {
  Stmt s = start(StmtKind::branch);
  s.value = std::move(condition);
  s.body = block("the branch");
  // 'else' may be on the line after the '}'.
  size_t ahead = 0;
  while (at_kind(TokenKind::newline, ahead)) ++ahead;
  if (at_word("else", ahead)) {
    skip_newlines();
    next();
    if (at_word("if")) {
      s.otherwise.push_back(statement());
    } else {
      s.otherwise = block("the branch");
    }
  }
  s.place = place_from(begin);
  return s;
}

}  // namespace lumen::lang
