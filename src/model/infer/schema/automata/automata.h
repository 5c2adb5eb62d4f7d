// Automata of JSON strings and numbers: patterns, formats, bounds and multiples, and the grammar rules that they
// become.
//
// May include: model/text/unicode.
#pragma once

#include "model/infer/schema/automata/automaton.h"
#include "model/infer/schema/automata/formats.h"
#include "model/infer/schema/automata/numbers.h"
#include "model/infer/schema/automata/pattern.h"
