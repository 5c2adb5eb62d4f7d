// Suggestions for misspelled words. Proved by tests/base/messages/spelling_test.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

// Edit distance with insert, delete, replace, and swap of neighbours.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance, if it is small enough for a typing error: one edit in words of up to
// three letters, two up to eight, three in longer ones. Empty if there is none. The first of equal candidates wins.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean 'x'?", or `otherwise` when no candidate is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, std::string otherwise = {});

// "did you mean 'x', 'y' or 'z'?": up to three candidates within two edits, or within a third of the word's length;
// empty when there is none.
std::string did_you_mean_any(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lumen
