// `lumen serve`: models behind an HTTP server with OpenAI's API (docs/guide/serving.md). Only http.cpp uses the HTTP
// library.
//
// May include: base, base/file, base/http, base/net, base/structured, base/threads, cli, cli/infer, cli/servers,
// cli/settings, model/arch/checkpoint, model/infer/session, model/serve, model/serve/forms, model/templates.
#pragma once

#include "cli/command.h"
