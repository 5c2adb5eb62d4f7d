// The recursive-descent and Pratt parser, shared by parse_expression.cpp, parse_statement.cpp, parse_declaration.cpp
// and parse_model.cpp. Private to this folder: others use parser.h. Invariants: every loop consumes a token; every
// recursion passes a Nesting guard; trees higher than kMaxHeight are refused, so that tree visitors and destructors may
// recurse.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.h"
#include "lang/lexer.h"

namespace lumen::lang {

constexpr int kMaxNesting = 200;
constexpr int kMaxHeight = 400;

// Binding powers, loosest first.
enum Power : int {
  kChoose = 0,
  kOr = 10,
  kAnd = 20,
  kCompare = 30,
  kBitOr = 40,
  kBitXor = 42,
  kBitAnd = 44,
  kShift = 50,
  kAdd = 60,
  kMultiply = 70,
  kUnary = 80,
  kPower = 90,
};
// Power of a binary operator, or -1.
int binary_power(std::string_view op);
bool is_reduction(std::string_view name);

class Parser {
 public:
  explicit Parser(SourceRef source) : source_(std::move(source)), tokens_(tokenize(source_)) {}

  File file();
  ExprPtr whole_expression();  // one expression up to the end of the text

 private:
  class Nesting {
   public:
    explicit Nesting(Parser& p) : parser_(p) { parser_.enter(); }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };
  void enter();

  // Tokens.
  const Token& peek(size_t ahead = 0) const;
  const Token& next();
  bool at_symbol(std::string_view s, size_t ahead = 0) const;
  bool at_word(std::string_view s, size_t ahead = 0) const;
  bool at_kind(TokenKind k, size_t ahead = 0) const { return peek(ahead).kind == k; }
  bool accept(std::string_view symbol_or_word);
  void expect(std::string_view symbol, std::string_view where, std::string_view hint = {});
  std::string expect_name(std::string_view what);
  void skip_newlines();
  void end_of_member(std::string_view what);  // expects a newline, ';' or the closing '}'
  Place place_from(uint32_t begin) const;     // from a byte to the end of the last token read
  Place place_of(const Token& t) const { return {source_, t.begin, t.end}; }
  std::string describe(const Token& t) const;
  [[noreturn]] void fail(const Token& t, const std::string& message, const std::string& hint = {}) const;

  // Expressions.
  ExprPtr expression();
  ExprPtr binary(int least);
  ExprPtr prefix();
  ExprPtr postfix();
  ExprPtr primary();
  ExprPtr choose(uint32_t begin);                          // after 'if'
  ExprPtr choose_tail(uint32_t begin, ExprPtr condition);  // at 'then'
  ExprPtr reduction();
  bool reduction_ahead() const;
  ExprPtr call(ExprPtr callee);
  ExprPtr index(ExprPtr base);
  ExprPtr subscript();
  static Expr start(ExprKind kind);
  static Stmt start(StmtKind kind);
  ExprPtr make(Expr e, uint32_t begin) const;  // sets place and height
  TypeExpr type();

  // Statements.
  std::vector<Stmt> block(std::string_view of);
  Stmt statement();
  Stmt let_statement();
  Stmt var_statement();
  Stmt loop_statement();
  Stmt branch_statement();
  Stmt branch_tail(uint32_t begin, ExprPtr condition);
  Stmt value_statement(ExprPtr first, uint32_t begin);
  void bind(const std::string& name) { bound_.insert(name); }

  // Declarations.
  std::vector<Param> params();
  Attribute attribute();
  std::vector<Attribute> attributes();           // separated by commas
  std::vector<Attribute> trailing_attributes();  // each after a comma
  Function function();
  Function routine();
  void body(Function& f);
  Table table();
  void format(File& f);
  FieldDecl field();
  LayoutPiece piece();
  ModelDecl model();
  ModelDecl optimizer();
  // Common to models and optimizers: keyword, name, one parameter, attributes, and members of the listed kinds.
  ModelDecl declared(const std::string& kind, const std::vector<std::string>& members);
  void member_of(ModelDecl& m, const std::string& one, const std::vector<std::string>& members);
  void config(ModelDecl& m);
  ConfigKey config_key();
  SizeDecl size();
  ModelParam model_param();
  void layers(ModelDecl& m);

  SourceRef source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  bool in_layout_ = false;    // there, words like 'byte' end an expression, and in a call '(' directly follows the name
  bool in_function_ = false;  // there, `y[i] = ...` over an unbound y defines y by index notation
  std::set<std::string> bound_;
};

}  // namespace lumen::lang
