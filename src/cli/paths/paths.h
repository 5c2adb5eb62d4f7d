// Input and output paths of commands. Every path option declares whether it is read or written, and PathGuard refuses
// outputs that would replace inputs, once before the work and, through base/file/protected.h, again when a file is
// moved into place. Proved by tests/cli/paths, which tries all options of all commands.
//
// May include: base, base/file, model/data/examples, model/file, model/file/hub.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file/protected.h"
#include "cli/paths/kinds.h"

namespace lumen::cli {

// For CLI::Option::check(): these validators accept every value and only record the declaration for PathGuard.
CLI::Validator reads(Reads what);
CLI::Validator writes(Writes what);

// The declaration of an option; nullopt without one.
std::optional<Reads> declared_reads(CLI::Option& option);
std::optional<Writes> declared_writes(CLI::Option& option);

// The paths in an option's value: NAME=FILE, FILE=SCALE, FILE:SCALE and A,B are split where no file has the whole value
// as its name. Paths that do not exist are left out, except hf:USER/REPO and aliases of the configuration.
std::vector<std::string> paths_in(const std::string& value);

// The files that are read for a path.
std::vector<std::filesystem::path> files_read(const std::string& path, Reads what);

// Checks all options that were given to a command. Error (usage) when an output would replace an input, when an output
// folder is also read, or when two outputs are the same file; Error when an output cannot be written. During its
// lifetime no file is moved over an input. Outputs are not checked with --dry-run, --plan, --print-config or --list,
// because then nothing is written.
class PathGuard {
 public:
  explicit PathGuard(CLI::App& command);

 private:
  void take_inputs(CLI::App& command);
  void check_outputs(CLI::App& command);

  ProtectedFiles inputs_;
  std::vector<std::string> folders_;  // folders that are read
};

}  // namespace lumen::cli
