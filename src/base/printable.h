// Text out of files made fit for people's eyes: control characters, which a terminal would obey, are shown as escapes.
// Used where anything foreign is printed: notes, errors, reports. Proved by tests/base/printable_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen {

enum class Lines { escaped, kept };  // line ends and tabs

// Control characters (C0, DEL, C1), bytes that are no UTF-8, and the characters that turn the direction of writing or
// end lines become \n, \x1b, \u202e. Line ends and tabs, too, unless they are kept: a name never makes a second line.
std::string printable(std::string_view text, Lines lines = Lines::escaped);

// For HTML and XML, in texts as in attributes: & < > " and ' as entities.
std::string as_markup(std::string_view text);

// For texts that shall look as they were written, on a terminal: only what a terminal would obey becomes an escape.
std::string harmless(std::string_view text);

// "512 bytes", "1.50 KiB", "23.4 GiB": in the largest unit of which there is one, so that nothing but zero reads as
// zero. Proved by tests/base/sizes_test.cpp.
std::string size_text(double bytes);

}  // namespace lumen
