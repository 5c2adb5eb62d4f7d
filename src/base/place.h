// A position in a text, so that messages can show file:line:column, the line and a caret.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lumen {

// A text with a name. Shared by every Place in it.
struct Source {
  std::string name;  // a path, or "<embedded formats/NAME.lum>"
  std::string text;
};
using SourceRef = std::shared_ptr<const Source>;

// Half-open byte range in a source. A null source means "position unknown".
struct Place {
  SourceRef source;
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct LineColumn {
  int line = 1;    // from 1
  int column = 1;  // from 1, in code points
};
LineColumn line_column(const Place& place);

// "q.lum:3:14: error: message\n    the line\n        ^~~~\n  hint: what to do"
std::string render_diagnostic(const Place& place, std::string_view message, std::string_view hint);

// An Error (exit code 1) whose message is the rendered diagnostic.
Error error_at(const Place& place, std::string_view message, std::string_view hint = {});

}  // namespace lumen
