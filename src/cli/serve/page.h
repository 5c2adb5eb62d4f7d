// The page at `/`: one file with its style and script, which may connect only to this server. Proved by
// tests/cli/serve/page_check.py.
#pragma once

#include "cli/serve/http.h"

namespace lumen::cli {

// The page with its Content-Security-Policy: only its own style and script, by digest, and no other origin.
HttpReply page_reply();

}  // namespace lumen::cli
