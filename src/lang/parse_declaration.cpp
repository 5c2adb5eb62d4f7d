// Files, functions, tables and formats of the parser; see parse.h.
#include "base/messages/spelling.h"
#include "lang/parse.h"
#include "lang/parser.h"

namespace lumen::lang {
namespace {

constexpr const char* kDeclarations = "a file holds 'format', 'table', 'fn', 'model' and 'optimizer' declarations";

bool is_level(std::string_view s) {
  return s == "element" || s == "block" || s == "row" || s == "tile" || s == "tensor";
}

}  // namespace

File Parser::file() {
  File f;
  f.source = source_;
  skip_newlines();
  while (!at_kind(TokenKind::end)) {
    const Token& t = peek();
    if (at_word("fn")) {
      f.functions.push_back(function());
    } else if (at_word("format")) {
      format(f);
    } else if (at_word("model")) {
      f.models.push_back(model());
    } else if (at_word("optimizer")) {
      f.models.push_back(optimizer());
    } else if (at_word("table")) {
      f.tables.push_back(table());
    } else {
      const std::string hint =
          t.kind == TokenKind::name
              ? did_you_mean(t.text, {"fn", "format", "table", "model", "optimizer"}, kDeclarations)
              : kDeclarations;
      fail(t, fmt::format("expected a declaration, found {}", describe(t)), hint);
    }
    end_of_member("the declaration");
    if (at_symbol("}")) fail(peek(), "'}' closes nothing");
  }
  return f;
}

std::vector<Param> Parser::params() {
  std::vector<Param> out;
  expect("(", "before the parameters");
  while (!at_symbol(")")) {
    const Token& t = peek();
    Param p;
    p.name = expect_name("a parameter's name");
    for (const Param& q : out)
      if (q.name == p.name) fail(t, fmt::format("parameter '{}' is named twice", p.name));
    if (accept(":")) p.type = type();
    if (accept("=")) p.default_value = expression();
    p.place = place_from(t.begin);
    out.push_back(std::move(p));
    if (!accept(",")) break;
  }
  expect(")", "after the parameters", "parameters are separated by ','");
  return out;
}

// '=' expression, or a block, or one line of index notation whose tensor is the result.
void Parser::body(Function& f) {
  for (const Param& p : f.params) bind(p.name);
  if (accept("=")) {
    skip_newlines();
    Stmt s = start(StmtKind::result);
    const uint32_t begin = peek().begin;
    s.values.push_back(expression());
    s.place = place_from(begin);
    f.body.push_back(std::move(s));
  } else if (at_symbol("{")) {
    f.body = block(fmt::format("'{}'", f.name));
  } else if (in_function_ && at_kind(TokenKind::newline) && at_kind(TokenKind::name, 1) && at_symbol("[", 2)) {
    next();
    Stmt s = statement();
    if (s.kind != StmtKind::define)
      throw error_at(s.place, fmt::format("expected the body of '{}'", f.name),
                     "without '=' or '{' it is one line of index notation: y[i, j] = ...");
    Stmt result = start(StmtKind::result);
    result.place = s.targets[0]->args[0]->place;
    result.values = {s.targets[0]->args[0]};
    f.body = {std::move(s), std::move(result)};
  } else {
    fail(peek(), fmt::format("expected '=' or '{{' before the body of '{}', found {}", f.name, describe(peek())),
         "a body is '= expression' or '{ statements }', and starts on the same line");
  }
  bound_.clear();
}

Function Parser::function() {
  const uint32_t begin = next().begin;
  Function f;
  f.name = expect_name("the function's name");
  f.params = params();
  if (at_kind(TokenKind::newline) && at_symbol("->", 1)) next();
  if (accept("->")) {
    do {
      skip_newlines();
      f.results.push_back(type());
    } while (accept(","));
  }
  in_function_ = true;
  body(f);
  in_function_ = false;
  f.place = place_from(begin);
  return f;
}

// decode(i) = ..., fit row(x) { ... }
Function Parser::routine() {
  const uint32_t begin = peek().begin;
  Function f;
  f.name = expect_name("a routine's name");
  if (at_kind(TokenKind::name)) {
    if (!is_level(peek().text))
      fail(peek(), fmt::format("'{}' is not a level", peek().text),
           did_you_mean(peek().text, {"block", "row", "tile", "tensor"}, "levels are block, row, tile and tensor"));
    f.name += " " + next().text;
  }
  f.params = params();
  body(f);
  f.place = place_from(begin);
  return f;
}

Table Parser::table() {
  const uint32_t begin = next().begin;
  Table t;
  t.name = expect_name("the table's name");
  expect(":", "after the table's name", "a table is written 'table NAME : f32 = [1, 2, 3]'");
  t.type = type();
  expect("=", "after the table's type");
  skip_newlines();
  expect("[", "before the table's values");
  while (!at_symbol("]")) {
    t.values.push_back(expression());
    if (!accept(",")) break;
  }
  if (t.values.empty()) fail(peek(), fmt::format("table '{}' has no values", t.name));
  expect("]", "after the table's values", "values are separated by ','");
  t.place = place_from(begin);
  return t;
}

Attribute Parser::attribute() {
  const uint32_t begin = peek().begin;
  Attribute a;
  a.name = expect_name("an attribute");
  while (at_kind(TokenKind::number) || at_kind(TokenKind::string) || at_kind(TokenKind::name) || at_symbol("("))
    a.values.push_back(primary());
  a.place = place_from(begin);
  return a;
}

std::vector<Attribute> Parser::attributes() {
  std::vector<Attribute> out;
  do {
    skip_newlines();
    out.push_back(attribute());
  } while (accept(","));
  return out;
}

std::vector<Attribute> Parser::trailing_attributes() {
  if (!accept(",")) return {};
  return attributes();
}

void Parser::format(File& file) {
  const uint32_t begin = next().begin;
  FormatDecl f;
  f.name = expect_name("the format's name");
  if (at_symbol("(")) f.params = params();
  if (accept(":")) f.attributes = attributes();
  static const std::vector<std::string> kKnown = {"block",       "gguf", "gguf_file", "tile",
                                                  "safetensors", "doc",  "extends"};
  for (const Attribute& a : f.attributes) {
    bool known = false;
    for (const std::string& k : kKnown) known = known || k == a.name;
    if (!known)
      throw error_at(a.place, fmt::format("unknown attribute '{}' of a format", a.name),
                     did_you_mean(a.name, kKnown, "known are block, gguf, gguf_file, tile, safetensors, doc, extends"));
  }
  if (accept("=")) {
    if (!f.params.empty()) fail(peek(), "a format made from another has no parameters of its own");
    skip_newlines();
    FormatAlias a;
    a.name = f.name;
    a.attributes = std::move(f.attributes);
    a.value = expression();
    if (a.value->kind != ExprKind::call)
      throw error_at(a.value->place, "expected a format with its parameters",
                     "e.g. 'format small = whole_numbers(bits = 4, group = 32)'");
    a.place = place_from(begin);
    file.aliases.push_back(std::move(a));
    return;
  }
  expect("{", fmt::format("to open the body of format '{}'", f.name), "attributes follow ':' and are separated by ','");
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
  while (!at_symbol("}")) {
    // A routine's name is followed by its parameters, with an optional level between.
    const bool is_routine = at_symbol("(", 1) || (at_kind(TokenKind::name, 1) && at_symbol("(", 2));
    if (is_routine) {
      f.routines.push_back(routine());
    } else {
      f.fields.push_back(field());
    }
    end_of_member(is_routine ? "the routine" : "the field");
  }
  next();
  f.place = place_from(begin);
  file.formats.push_back(std::move(f));
}

FieldDecl Parser::field() {
  const uint32_t begin = peek().begin;
  FieldDecl d;
  if (at_kind(TokenKind::name, 1)) {
    const Token& t = peek();
    if (!is_level(t.text))
      fail(t, fmt::format("'{}' is not a level", t.text),
           did_you_mean(t.text, {"element", "block", "row", "tile", "tensor"},
                        "levels are element, block, row, tile and tensor"));
    d.level = next().text;
  }
  d.name = expect_name("a field or a routine");
  expect(":", fmt::format("after the field's name '{}'", d.name),
         "a field is written 'name : type', a routine 'name(parameters) = value'");
  d.type = type();
  if (accept("at")) {
    in_layout_ = true;
    do {
      skip_newlines();
      d.layout.push_back(piece());
    } while (accept(","));
    in_layout_ = false;
  }
  d.place = place_from(begin);
  return d;
}

LayoutPiece Parser::piece() {
  const Token& first = peek();
  const uint32_t begin = first.begin;
  LayoutPiece p;
  bool empty = true;
  if (accept("halves")) {
    p.shorthand = "halves";
    empty = false;
  }
  const bool shorthand = !empty;
  if (!shorthand && accept("[")) {
    p.index_from = binary(kAdd);
    expect("..", "in the piece's range of entries", "entries are written [a..b], both ends included");
    p.index_to = binary(kAdd);
    expect("]", "after the piece's entries");
    empty = false;
  }
  if (!shorthand && accept("bits")) {
    p.bits_from = binary(kAdd);
    expect("..", "in the piece's range of bits", "bits are written a..b, both ends included");
    p.bits_to = binary(kAdd);
    empty = false;
  }
  if (accept("byte")) {
    p.byte = binary(kAdd);
    empty = false;
  }
  if (accept("bit")) {
    p.bit = binary(kAdd);
    empty = false;
  }
  if (!shorthand && accept("(")) {
    do {
      ExprPtr extent = binary(kAdd);
      expect(":", "between a mode's extent and its stride",
             "modes are written (extent : stride, ...), strides in bits, slowest first");
      p.modes.emplace_back(std::move(extent), binary(kAdd));
    } while (accept(","));
    expect(")", "after the piece's modes");
    empty = false;
  }
  if (empty)
    fail(first, fmt::format("expected a piece of the layout, found {}", describe(first)),
         first.kind == TokenKind::name
             ? did_you_mean(first.text, {"halves", "bits", "byte", "bit"},
                            "a piece is 'halves' or [a..b] bits a..b byte e bit e (extent : stride, ...)")
             : "a piece is 'halves' or [a..b] bits a..b byte e bit e (extent : stride, ...)");
  p.place = place_from(begin);
  return p;
}

File parse_file(SourceRef source) {
  return Parser(std::move(source)).file();
}

}  // namespace lumen::lang
