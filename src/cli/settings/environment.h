// Options from environment variables: LUMEN_THREADS=4 stands for --threads 4. The command line has priority, and a
// recipe or a default holds only where neither gives a value. Proved by tests/cli/settings/environment_test.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lumen::cli {

struct FromEnvironment {
  std::string variable, option, value;
};

// Whether the environment has a variable of one of the command's options. An empty variable counts as none.
bool has_variables(const CLI::App& command);

// Gives options of `command`, which is parsed later, the values of their variables, but for those that `given` has got
// from the command line, and those that exclude one that it has got. `given` is the same command after parsing. Error
// (usage) that names the variable where the option refuses its value; `text` words what the parser throws.
std::vector<FromEnvironment> take_environment(CLI::App& command, const CLI::App& given,
                                              const std::function<std::string(const CLI::ParseError&)>& text);

}  // namespace lumen::cli
