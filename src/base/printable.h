// Makes text from files safe to print: control characters, which a terminal would obey, are shown as escapes. Used
// wherever text from outside is printed: notes, errors, reports. Proved by tests/base/printable_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen {

enum class Lines { escaped, kept };  // for line ends and tabs

// Escapes control characters (C0, DEL, C1), invalid UTF-8, and characters that change the writing direction or end
// lines, as \n, \x1b, \u202e. Line ends and tabs, too, unless kept: a name never creates a second line.
std::string printable(std::string_view text, Lines lines = Lines::escaped);

// For HTML and XML, in text and attributes: & < > " and ' as entities.
std::string as_markup(std::string_view text);

// For text shown as written on a terminal: only characters that a terminal would obey are escaped.
std::string harmless(std::string_view text);

// "512 bytes", "1.50 KiB", "23.4 GiB": in the largest unit with a value of at least one, so only zero is printed as
// zero. Proved by tests/base/sizes_test.cpp.
std::string size_text(double bytes);

}  // namespace lumen
