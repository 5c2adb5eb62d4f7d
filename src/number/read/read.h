// Formats from their texts: declarations, fields and routines are parsed, typed and checked, and small functions become
// tables.
//
// May include: base, base/messages, lang, number/facts, number/format.
#pragma once

#include "number/read/declaration.h"
#include "number/read/names.h"
