// Samples the next token from logits: temperature, truncation (top-k, top-p, ..), penalties, and sets of allowed
// tokens.
//
// May include: base, graph/ir, model/text/tokenizer, number/formula.
// Offers: logit_row.h, race.h, token_set.h.
#pragma once

#include "model/infer/sample/sampler.h"
