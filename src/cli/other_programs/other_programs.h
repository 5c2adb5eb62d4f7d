// Options of other inference programs, and Lumen's counterparts. Proved by
// tests/cli/other_programs/other_programs_test.cpp.
//
// May include: nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::cli {

struct OtherOption {
  std::string_view names;  // separated by commas: "-ngl,--n-gpu-layers"
  const char* needs;       // the hint is for commands with this option; empty: for all commands
  const char* hint;
};
std::span<const OtherOption> options_of_other_programs();

// The hint for an option `name` that `command` lacks; empty where the table has none.
std::string hint_for_other_option(const CLI::App& command, std::string_view name);

// The first word that is such an option with several letters after a single dash, for which there is a hint. The parser
// would read "-ngl 99" as option -n with the value "gl". The values of the command's own options are skipped.
std::optional<std::string> other_short_option(const CLI::App& command, const std::vector<std::string>& words);

}  // namespace lumen::cli
