// Numbers as options take them. The parser's own reading takes 010 for eight, nan for a rate and a number that is too
// large for the largest one: here every number is read once more, before the parser does. Proved by
// tests/cli/flags_test.cpp, for all options of all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::cli {

// Whole numbers and numbers within bounds (both included), refused with readable ones.
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator real(double least, double most);

// Two whole numbers of at least 1 with a sign between them, as in 512,128 or 5632x2048; nothing where a text is none.
std::optional<std::pair<int64_t, int64_t>> two_counts(std::string_view text, char sign);

// Gives every option of numbers, of this command and of those below it, a first check: it is one, it is finite, and it
// is of a size that counts can have.
void guard_numbers(CLI::App& app);

// Texts KEY=NUMBER as --config takes them, by key. Error (usage) with the one that is none.
std::map<std::string, double> named_numbers(const std::vector<std::string>& texts);

// "4G", "5GB", "500M", "1000000"; 0 for no text. Error (usage).
int64_t size_of(const std::string& text);

// What is wrong with the words of a command line, in sentences of our own: the parser's are its library's.
std::string usage_text(const CLI::ParseError& error);

}  // namespace lumen::cli
