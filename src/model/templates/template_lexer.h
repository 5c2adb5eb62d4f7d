// Tokens of a template: text, tags, and tokens within tags, with Jinja's white space control applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/place.h"

namespace lumen::model::templates {

struct TemplateToken {
  enum class Kind { text, open_print, close_print, open_block, close_block, name, string, integer, number, sign, end };
  Kind kind = Kind::end;
  std::string text;
  size_t at = 0;
};

// Normalizes line ends to \n, and removes one at the end of the text.
std::string template_lines(std::string_view text);
// Error with the position of an unterminated or unexpected token.
std::vector<TemplateToken> template_tokens(const SourceRef& source);

}  // namespace lumen::model::templates
