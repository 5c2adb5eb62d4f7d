// The whole program as one function. Apart from command.h, because who only calls it need not read the parser of flags.
// Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

namespace lumen::cli {

// Arguments in, exit code out. Output goes to stdout, notes and errors to stderr.
int run_app(int argc, const char* const* argv);

// A command inside another program: errors are thrown, what would go to stdout is appended to `output`, and Ctrl-C asks
// it to stop, behind which the program's own handler is called. Returns its exit code. One runs at a time.
int run_command(const std::vector<std::string>& words, std::string* output);
// The same beside others, in a thread of its own: no signal stops it.
int run_beside(const std::vector<std::string>& words, std::string* output);

}  // namespace lumen::cli
