// needs: none. parse(print(tree)) == tree, for random trees and for every file of the embedded library.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <filesystem>

#include "base/file/file.h"
#include "equal_tree.h"
#include "lang/lexer.h"
#include "lang/parser.h"

namespace lumen::lang {
namespace {

using Names = std::vector<std::string>;

ExprPtr leaf(int depth);

ExprPtr node(ExprKind kind, std::string text, std::vector<ExprPtr> args) {
  Expr e;
  e.kind = kind;
  e.text = std::move(text);
  e.args = std::move(args);
  e.names.resize(kind == ExprKind::call ? e.args.size() : 0);
  return std::make_shared<const Expr>(std::move(e));
}

std::string word() {
  return *rc::gen::elementOf(Names{"x", "y", "cfg", "sum", "max", "step", "bits", "k1", "_t"});
}

ExprPtr random_expression(int depth) {
  if (depth <= 0) return leaf(depth);
  const auto sub = [&] { return random_expression(depth - 1); };
  switch (*rc::gen::inRange(0, 10)) {
    case 0:
      return leaf(depth);
    case 1:
      return node(ExprKind::unary, *rc::gen::elementOf(Names{"-", "not", "~"}), {sub()});
    case 2:
    case 3:
    case 4:
      return node(ExprKind::binary,
                  *rc::gen::elementOf(
                      Names{"or", "and", "==", "<", ">=", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "%", "**"}),
                  {sub(), sub()});
    case 5: {
      ExprPtr call = node(ExprKind::call, word(), {sub(), sub()});
      Expr e = *call;
      if (*rc::gen::inRange(0, 2)) e.names[1] = "eps";
      return std::make_shared<const Expr>(std::move(e));
    }
    case 6: {
      const ExprPtr slice = node(
          ExprKind::slice, "", {*rc::gen::inRange(0, 2) ? sub() : nullptr, *rc::gen::inRange(0, 2) ? sub() : nullptr});
      return node(ExprKind::index, "", {node(ExprKind::name, word(), {}), slice, sub()});
    }
    case 7:
      return node(ExprKind::member, "hidden", {sub()});
    case 8: {
      Expr e;
      e.kind = ExprKind::reduce;
      e.text = *rc::gen::elementOf(Names{"sum", "max", "argmin", "any"});
      e.vars = {"i", "j"};
      e.ranges = {{nullptr, nullptr}, {sub(), sub()}};
      e.args = {sub()};
      return std::make_shared<const Expr>(std::move(e));
    }
    default:
      return node(ExprKind::choose, "", {sub(), sub(), sub()});
  }
}

ExprPtr leaf(int) {
  Expr e;
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      e.kind = ExprKind::number;
      e.is_integer = true;
      e.integer = *rc::gen::inRange<int64_t>(0, INT64_MAX);
      e.number = static_cast<double>(e.integer);
      break;
    case 1:
      e.kind = ExprKind::number;
      e.number = std::abs(*rc::gen::arbitrary<double>());
      if (!std::isfinite(e.number)) e.number = 0.5;
      break;
    case 2:
      e.kind = ExprKind::string;
      e.text = *rc::gen::elementOf(Names{"", "a\"b", "\\n", "line\nbreak\t", "blk.{i}"});
      break;
    case 3:
      e.kind = ExprKind::list;
      e.args = {node(ExprKind::name, word(), {}), node(ExprKind::name, word(), {})};
      break;
    default:
      e.kind = ExprKind::name;
      e.text = word();
  }
  return std::make_shared<const Expr>(std::move(e));
}

TEST(Print, RandomExpressionsComeBack) {
  EXPECT_TRUE(rc::check([] {
    const ExprPtr e = random_expression(*rc::gen::inRange(0, 5));
    const std::string text = print_expression(*e);
    RC_LOG() << text;
    const ExprPtr back = parse_expression(std::make_shared<Source>(Source{"random", text}));
    RC_ASSERT(equal(e, back));
    RC_ASSERT(print_expression(*back) == text);
  }));
}

TEST(Print, WhatStandsOutside) {
  const ExprPtr e = parse_expression(std::make_shared<Source>(Source{"outside", "x[h*2+i-1 , c;  -1.5]+y[ i ]"}));
  EXPECT_EQ(print_expression(*e), "x[h * 2 + i - 1, c; -1.5] + y[i]");
  EXPECT_THROW(parse_expression(std::make_shared<Source>(Source{"outside", "x[h; ]"})), Error);
  EXPECT_THROW(parse_expression(std::make_shared<Source>(Source{"outside", "x[; 0]"})), Error);
  EXPECT_THROW(parse_expression(std::make_shared<Source>(Source{"outside", "x[h; 0, 1]"})), Error);
}

// Words that end a range or begin a layout elsewhere, where a sum's body begins: names and calls.
TEST(Print, BodiesThatBeginWithWordsOfOthers) {
  for (const char* word : {"step", "byte", "bit", "bits"})
    for (const char* body : {"({})", "({}(0, 1))", "({}[k].hidden * 2)"}) {
      const std::string text = "sum(k in 0..4) " + fmt::format(fmt::runtime(body), word);
      const ExprPtr e = parse_expression(std::make_shared<Source>(Source{"words", text}));
      EXPECT_EQ(print_expression(*e), text);
    }
}

// Strings of tokens without sense: either refused with an Error, or printed and read back.
TEST(Print, RandomTokensNeverCrash) {
  static const Names kPieces = {"fn ",    "f",      "(",       ")",     "[",       "]",      "{",       "}",
                                " x ",    "let ",   "var ",    "for ",  " in ",    "..",     "if ",     " then ",
                                " else ", " = ",    "\n",      ";",     ",",       ":",      "format ", "model ",
                                "(cfg)",  "param ", "layers ", "size ", "config ", "table ", "f32",     "...",
                                "->",     "+",      "-",       "**",    "sum(k) ", "3",      "1.5",     "\"s\"",
                                " at ",   "halves", "bits ",   "byte ", "return ", "<",      ">"};
  EXPECT_TRUE(rc::check([] {
    const auto pieces = *rc::gen::container<Names>(rc::gen::elementOf(kPieces));
    std::string text;
    for (const std::string& p : pieces) text += p;
    try {
      const File f = parse_file(std::make_shared<Source>(Source{"random", text}));
      const std::string printed = print_file(f);
      RC_ASSERT(equal(f, parse_file(std::make_shared<Source>(Source{"printed", printed}))));
    } catch (const Error&) {
    }
  }));
}

TEST(Print, EveryFileOfTheLibraryComesBack) {
  int files = 0;
  for (const char* folder : {"formats", "models"})
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(LUMEN_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".lum") continue;
      SCOPED_TRACE(entry.path().string());
      const File f = parse_file(std::make_shared<Source>(Source{entry.path().filename(), read_file(entry.path())}));
      const std::string printed = print_file(f);
      const File back = parse_file(std::make_shared<Source>(Source{"printed", printed}));
      EXPECT_TRUE(equal(f, back)) << printed;
      EXPECT_EQ(print_file(back), printed);
      ++files;
    }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace lumen::lang
