// The word that a user probably meant. Proved by tests/base/messages/spelling_test.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

// How many edits make one word of the other: insert, delete, replace, swap of neighbours.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance, when it is close enough to be a slip: one edit in words of up to three
// letters, two up to eight, three beyond. Empty when none is. Ties go to the first.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean 'x'?", or `otherwise` when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, std::string otherwise = {});

// "did you mean 'x', 'y' or 'z'?": up to three that are within two edits, or within a third of the word's length; empty
// when none is.
std::string did_you_mean_any(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lumen
