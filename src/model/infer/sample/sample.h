// The next token from logits: temperature, cuts, penalties, and grammars or JSON schemas that it must follow.
//
// May include: base, graph/ir, model/text/tokenizer, model/text/unicode, model/text/vocabulary.
// Offers: logit_row.h.
#pragma once

#include "model/infer/sample/grammar.h"
#include "model/infer/sample/json_schema.h"
#include "model/infer/sample/sampler.h"
