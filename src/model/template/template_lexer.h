// The words of a template: text, tags, and what stands in tags; white space around tags goes where it shall.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/place.h"

namespace lumen::model {

struct TemplateToken {
  enum class Kind { text, open_print, close_print, open_block, close_block, name, string, integer, number, sign, end };
  Kind kind = Kind::end;
  std::string text;
  size_t at = 0;
};

// Lines end in \n, and one at the end of the text does not count.
std::string template_lines(std::string_view text);
// Error with its place at what has no end or no place.
std::vector<TemplateToken> template_tokens(const SourceRef& source);

}  // namespace lumen::model
