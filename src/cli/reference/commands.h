// The commands and options of the program, read from its parser. Proved by tests/cli/reference/reference_test.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/settings/settings.h"

namespace lumen::cli {

struct OptionEntry {
  std::vector<std::string> names;  // with dashes, "-m" and "--model"; a positional argument has its name without a dash
  std::string type;                // "FILE"; empty for flags
  std::vector<std::string> choices;
  std::string help, group, fallback;          // fallback: the value without the option, where the help shows one
  bool is_required = false, is_list = false;  // is_list: takes several values
  bool value_is_optional = false;             // "--resume" alone has a meaning
  const Setting* row = nullptr;               // its row of the table of options; null where it has none
};

struct CommandEntry {
  std::string name;  // "lumen data stats"
  std::string help, footer;
  std::vector<OptionEntry> options, arguments;
  std::vector<CommandEntry> commands;
};

CommandEntry describe(const CLI::App& app);
// The entry for "data stats"; null where there is none.
const CommandEntry* find_command(const CommandEntry& program, const std::vector<std::string>& words);

// Completion scripts for commands, options and choices; other words complete to files. Shells: bash, zsh, fish.
std::string bash_completion(const CommandEntry& program);
std::string zsh_completion(const CommandEntry& program);
std::string fish_completion(const CommandEntry& program);

// A manual page (section 1) for one command.
std::string manual_page(const CommandEntry& command, const std::string& version);
// The same for a command and all its subcommands, as Markdown.
std::string markdown_reference(const CommandEntry& command);
// The rows of the table of options that a command and all below it have, as a JSON array.
std::string option_table(const CommandEntry& command);

}  // namespace lumen::cli
