// The page at `/`: one file with its style and script, which may connect only to this server. The build makes it from
// the folder page and from the libraries that render Markdown, formulas and code (cmake/page.cmake). Proved by
// tests/cli/serve/page_check.py and page_features_check.py.
#pragma once

#include "cli/serve/http.h"

namespace lumen::cli {

// The page with its Content-Security-Policy: only its own style and script, by digest, and no other origin.
HttpReply page_reply();

}  // namespace lumen::cli
