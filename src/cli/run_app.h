// The whole program as one function. Apart from command.h, because who only calls it need not read the parser of flags.
// Proved by tests/cli.
#pragma once

namespace lumen::cli {

// Arguments in, exit code out. Output goes to stdout, notes and errors to stderr.
int run_app(int argc, const char* const* argv);

}  // namespace lumen::cli
