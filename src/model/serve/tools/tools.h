// Functions that a model may call in a chat: how its template writes calls, the grammar that binds what is written to
// the functions that were offered, and calls found in the text as it grows.
//
// May include: base, model/infer/sample, model/template, model/text/unicode.
#pragma once

#include "model/serve/tools/call_form.h"
#include "model/serve/tools/call_grammar.h"
#include "model/serve/tools/call_reader.h"
