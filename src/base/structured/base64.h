// Bytes as letters, digits, + and / (RFC 4648, section 4). Proved by tests/base/structured/base64_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen {

std::string encode_base64(std::string_view bytes);
// What stands before the first '='. Error when a character is none of base64; `where` is what it says.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace lumen
