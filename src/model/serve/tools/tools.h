// Tool calls in chats: the template's format of calls, the grammar that restricts outputs to the offered functions, and
// the incremental parser of calls in outputs.
//
// May include: base, model/infer/schema, model/templates, model/text/unicode.
#pragma once

#include "model/serve/tools/call_form.h"
#include "model/serve/tools/call_grammar.h"
#include "model/serve/tools/call_reader.h"
