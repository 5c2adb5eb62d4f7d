// Other HTTP APIs for the same outputs: their requests are converted to chat requests (model/serve/request.h), and
// replies use their JSON and events.
//
// May include: base, base/structured, model/infer/measure, model/serve, model/serve/pictures, model/text/unicode.
#pragma once

#include "model/serve/forms/infill.h"
#include "model/serve/forms/messages.h"
#include "model/serve/forms/native.h"
#include "model/serve/forms/ollama.h"
#include "model/serve/forms/rerank.h"
#include "model/serve/forms/responses.h"
