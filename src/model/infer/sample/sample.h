// Samples the next token from logits: temperature, truncation (top-k, top-p, ..), penalties, and constraints by
// grammars or JSON schemas.
//
// May include: base, graph/ir, model/text/tokenizer, model/text/unicode, model/text/vocabulary, number/formula.
// Offers: grammar.h, logit_row.h, race.h.
#pragma once

#include "model/infer/sample/grammar_states.h"
#include "model/infer/sample/sampler.h"
