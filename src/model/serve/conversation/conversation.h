// Conversations as chat templates take them: the roles that a template renders, the marks around reasoning, and
// messages of clients that are repaired rather than refused. Everything about a template is found by rendering known
// messages, not by its name.
//
// May include: base, base/structured, model/templates.
#pragma once

#include "model/serve/conversation/history.h"
#include "model/serve/conversation/reasoning.h"
#include "model/serve/conversation/roles.h"
