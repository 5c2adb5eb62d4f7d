// Numeric options. The parser's own conversion reads 010 as octal, accepts nan, and clamps numbers that are too large;
// so every number is checked here before the parser converts it. Proved by tests/cli/flags_test.cpp for all options of
// all commands.
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

// Validators for whole and real numbers within bounds (both included), with readable messages.
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator real(double least, double most);

// Two whole numbers of at least 1 with a separator between them, as in 512,128 or 5632x2048; nullopt for anything else.
std::optional<std::pair<int64_t, int64_t>> two_counts(std::string_view text, char sign);

// Adds to every numeric option of this command and its subcommands a first check: the value is a number, finite, and
// within the range of a count.
void guard_numbers(CLI::App& app);

// Parses KEY=NUMBER, the form of --config, into a map by key. Error (usage) that quotes a malformed one.
std::map<std::string, double> named_numbers(const std::vector<std::string>& texts);

// "4G", "5GB", "500M", "1000000"; 0 for an empty text. Error (usage).
int64_t size_of(const std::string& text);

// The message for a parse error, in our own wording instead of the parser library's.
std::string usage_text(const CLI::ParseError& error);

}  // namespace lumen::cli
