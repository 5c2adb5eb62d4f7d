// The page at `/`: one file with its style and script, which may reach this server and nothing else. Proved by
// tests/cli/serve/page_check.py.
#pragma once

#include "cli/serve/http.h"

namespace lumen::cli {

// What browsers hold it to: its own style and script by their digests, and no other origin.
HttpReply page_reply();

}  // namespace lumen::cli
