// What a command reads and what it writes: every option that takes a path says which, and one door (PathGuard) refuses
// outputs that would replace inputs, before the work and, by base/file/protected.h, again when a file is moved into
// place. Proved by tests/cli/paths, which tries all options of all commands.
//
// May include: base, base/file, model/data/examples, model/file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file/protected.h"

namespace lumen::cli {

// Which files an option's value leads to that are read.
enum class Reads {
  file,     // the file
  model,    // a model: a GGUF file with its other parts, a Hugging Face folder, the folder of a run
  data,     // files of texts or rows, or folders of them
  folder,   // the files of a folder, not of those in it
  run,      // what a training run has left in a folder
  resumed,  // a run that goes on: its folder is written, too
  tasks,    // a folder in which tasks name files: the command says which, when it knows the tasks
  library,  // folders with *.lum and *.toml
};

// What is written where an option's value leads to.
enum class Writes {
  file,
  model,            // a file or a folder; the command itself tries whether it can write
  model_or_input,   // the same; with --overwrite it may be the model that is read
  folder,           // a folder of results
  folder_of_run,    // the same; the command itself tries whether it can write
  folder_of_cache,  // a folder of files by names of their own
};

// For CLI::Option::check(): they refuse no value, but tell the door what the option is.
CLI::Validator reads(Reads what);
CLI::Validator writes(Writes what);

// What an option was declared to be.
std::optional<Reads> declared_reads(CLI::Option& option);
std::optional<Writes> declared_writes(CLI::Option& option);

// The paths that a value of an option means: NAME=FILE, FILE=SCALE, FILE:SCALE and A,B are taken apart where no file
// has the whole value's name. What is not there is left out, but for hf:USER/REPO.
std::vector<std::string> paths_in(const std::string& value);

// The files that are read where a path leads to.
std::vector<std::filesystem::path> files_read(const std::string& path, Reads what);

// Looks at all options that were given to a command. Error (usage) when an output would replace an input, when a folder
// of results is one that is read, or when two outputs are one file; Error when an output cannot be written. While it
// lives nothing moves a file over an input. Outputs are not looked at where --dry-run, --plan, --print-config or --list
// says that nothing is written.
class PathGuard {
 public:
  explicit PathGuard(CLI::App& command);

 private:
  void take_inputs(CLI::App& command);
  void check_outputs(CLI::App& command);

  ProtectedFiles inputs_;
  std::vector<std::string> folders_;  // that are read
};

}  // namespace lumen::cli
