// The commands and options of the program, read from its parser. Proved by tests/cli/reference/reference_test.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lumen::cli {

struct OptionEntry {
  std::vector<std::string> names;  // with dashes, "-m" and "--model"; of an argument without a dash its name
  std::string type;                // "FILE"; empty for flags
  std::vector<std::string> choices;
  std::string help, group, fallback;  // fallback: the value without the option, where the help shows one
  bool is_required = false;
};

struct CommandEntry {
  std::string name;  // "lumen data stats"
  std::string help, footer;
  std::vector<OptionEntry> options, arguments;
  std::vector<CommandEntry> commands;
};

CommandEntry describe(const CLI::App& app);
// "data stats" -> that entry; null where there is none.
const CommandEntry* find_command(const CommandEntry& program, const std::vector<std::string>& words);

// Scripts that complete commands, options and choices; other words complete to files. Shells: bash, zsh, fish.
std::string bash_completion(const CommandEntry& program);
std::string zsh_completion(const CommandEntry& program);
std::string fish_completion(const CommandEntry& program);

// A page of section 1 for `man`, of a command.
std::string manual_page(const CommandEntry& command, const std::string& version);
// The same of a command and all below it, as Markdown.
std::string markdown_reference(const CommandEntry& command);

}  // namespace lumen::cli
