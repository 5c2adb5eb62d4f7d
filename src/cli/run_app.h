// The whole program as one function. It is separate from command.h, so that callers need not include the option parser.
// Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

namespace lumen::cli {

// Takes the arguments and returns the exit code. Results go to stdout, notes and errors to stderr.
int run_app(int argc, const char* const* argv);

// Runs a command inside another program: errors are thrown, standard output is appended to `output`, and Ctrl-C asks
// the command to stop and then calls the program's own handler. Returns the exit code. Only one may run at a time.
int run_command(const std::vector<std::string>& words, std::string* output);
// The same, concurrently with others and in its own thread: no signal stops it.
int run_in_process(const std::vector<std::string>& words, std::string* output);

}  // namespace lumen::cli
