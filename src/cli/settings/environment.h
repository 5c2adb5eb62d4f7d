// Options from environment variables, LUMEN_THREADS=4 for --threads 4, and from the user's configuration file
// (cli/config). The command line has priority over variables, they over the file, and a default holds only where none
// of them gives a value. Proved by tests/cli/settings/environment_test.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/settings/settings.h"

namespace lumen::cli {

// A value that an option has got from elsewhere than the command line.
struct TakenValue {
  enum class Source { environment, configuration } source;
  std::string place;  // the variable's name, or FILE:LINE of the configuration
  std::string option, value;
};

// A value of the configuration file.
struct ConfiguredValue {
  std::string option;               // "--ctx-size"
  std::string place;                // FILE:LINE
  std::vector<std::string> values;  // as on the command line; "true" and "false" of flags
  const Setting* row = nullptr;
};

// Whether the environment has a variable of one of the command's options. An empty variable counts as none.
bool has_variables(const CLI::App& command);

// Gives options of `command`, which is parsed later, the values of their variables, but for those that `given` has got
// from the command line, and those that exclude one that it has got. `given` is the same command after parsing. Error
// (usage) that names the variable where the option refuses its value; `text` words what the parser throws.
std::vector<TakenValue> take_environment(CLI::App& command, const CLI::App& given,
                                         const std::function<std::string(const CLI::ParseError&)>& text);

// The same with values of the configuration file, after take_environment(). Options that a recipe sets are left to the
// recipe where one is given.
std::vector<TakenValue> take_config(CLI::App& command, const CLI::App& given,
                                    const std::vector<ConfiguredValue>& values,
                                    const std::function<std::string(const CLI::ParseError&)>& text);

}  // namespace lumen::cli
