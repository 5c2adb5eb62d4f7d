// The formats of strings in JSON schemas, as patterns. Proved by tests/model/infer/schema/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace lumen::model::infer {

// An anchored pattern for date, time, date-time (RFC 3339; days by the length of the month, leap years included),
// duration, email, hostname, ipv4, ipv6, uri, uri-reference, iri, uuid, json-pointer and relative-json-pointer. Null
// for other names, which are annotations.
const std::string* format_pattern(const std::string& name);

// Whether the pattern is all of the format. Hostnames are limited to this many characters in addition.
bool format_is_whole(const std::string& name);
inline constexpr int64_t kLongestHostname = 253;

}  // namespace lumen::model::infer
