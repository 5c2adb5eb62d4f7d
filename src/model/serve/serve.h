// A model that answers many clients at once, without HTTP: what requests ask for, the sequences generated together,
// what is said back, and how it goes. src/cli/serve puts it behind HTTP (docs/guide/serving.md).
//
// May include: base, base/structured, model/infer/generate, model/infer/measure, model/infer/prefixes,
// model/infer/sample, model/serve/tools, model/template, model/text/tokenizer, model/text/unicode.
#pragma once

#include "model/serve/fields.h"
#include "model/serve/metrics.h"
#include "model/serve/reply.h"
#include "model/serve/request.h"
#include "model/serve/scheduler.h"
