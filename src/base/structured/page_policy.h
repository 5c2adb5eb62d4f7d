// Content security policies of pages that carry their own style and script. Proved by
// tests/base/structured/page_policy_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen {

// The digest of the text between the first <TAG> without attributes and its end, as policies name it: 'sha256-..'.
// The page must have such an element (LUMEN_CHECK).
std::string policy_digest(std::string_view page, std::string_view tag);

}  // namespace lumen
