// The text people write, as a tree: lexer, Pratt parser, printer. Formats, functions, tables, models and optimizers are
// written in it.
//
// May include: base.
#pragma once

#include "lang/ast.h"
#include "lang/parser.h"
#include "lang/spelling.h"
