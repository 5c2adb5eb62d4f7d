// The public interface of the parser: text in, tree out, or an Error with place, line, caret and hint. Nesting depth,
// token and node counts are bounded, so a hostile text ends in an Error, never in a crash.
#pragma once

#include "lang/ast.h"

namespace lumen::lang {

File parse_file(SourceRef source);

// A single expression; for tests and the command line.
ExprPtr parse_expression(SourceRef source);

// Prints a tree as text that parses to an equal tree (exact inverse up to whitespace).
std::string print_file(const File& file);
std::string print_expression(const Expr& expr);

}  // namespace lumen::lang
