// Checks of numbers within bounds. The parser's own checks name the largest number there is, digit by digit.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace lumen::cli {

// Validators for whole and real numbers within bounds (both included), with readable messages.
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator real(double least, double most);

// The largest count and the largest number that options take.
inline constexpr int64_t kMostCount = 1'000'000'000'000'000;
inline constexpr double kMostReal = 1e30;

// The error for a text that is no number within bounds, else empty. A valid whole number is rewritten in decimal, which
// the parser cannot misread.
std::string check_whole(std::string& text, int64_t least, int64_t most);
std::string check_real(std::string& text, double least, double most);

}  // namespace lumen::cli
