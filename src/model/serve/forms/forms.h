// Other APIs by which the same outputs are asked for: requests become chats (model/serve/request.h), and answers are
// said in their words and events.
//
// May include: base/structured, model/serve.
#pragma once

#include "model/serve/forms/messages.h"
#include "model/serve/forms/responses.h"
