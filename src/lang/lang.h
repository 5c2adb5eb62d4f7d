// The syntax of Lumen's language: lexer, Pratt parser, printer. Formats, functions, tables, models and optimizers are
// written in it.
//
// May include: base, base/messages.
#pragma once

#include "base/messages/spelling.h"
#include "lang/ast.h"
#include "lang/parser.h"
