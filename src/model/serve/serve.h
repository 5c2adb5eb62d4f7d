// Serves a model to many clients at once, without the HTTP layer: parsing of requests, continuous batching, replies,
// and metrics. src/cli/serve adds HTTP (docs/guide/serving.md).
//
// May include: base, base/structured, model/image, model/infer/generate, model/infer/measure, model/infer/prefixes,
// model/infer/schema, model/infer/tower, model/serve/conversation, model/serve/pictures, model/serve/tools,
// model/templates, model/text/tokenizer, model/text/unicode.
// Offers: asked_pictures.h, hints.h.
#pragma once

#include "model/serve/fields.h"
#include "model/serve/metrics.h"
#include "model/serve/reply.h"
#include "model/serve/request.h"
#include "model/serve/scheduler.h"
