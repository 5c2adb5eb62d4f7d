// Base64 (RFC 4648, section 4). Proved by tests/base/structured/base64_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen {

std::string encode_base64(std::string_view bytes);
// Decodes the text before the first '='. Error for a character outside base64; `where` is the subject of its message.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace lumen
