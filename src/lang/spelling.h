// The word a user probably meant. Proved by tests/lang/lexer_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumen::lang {

// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours), when it is close enough
// to be a slip: one edit in words of up to three letters, two up to eight, three beyond. Empty when none is. Ties go to
// the first.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean 'x'?", or `otherwise` when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, std::string otherwise = {});

}  // namespace lumen::lang
