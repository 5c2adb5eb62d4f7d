// The commands of the program, one file each. A command adds its options to the application and sets an action, which
// runs after parsing. Errors are thrown as lumen::Error and printed in one place (app.cpp). Proved by tests/cli.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "model/arch/family/family.h"
#include "run/engine/engine.h"

namespace lumen::cli {

// Options that every command has.
struct Shared {
  std::vector<std::string> format_folders, model_folders;
  int threads = 0;
  bool verbose = false, quiet = false;
  std::string cache;  // "" default, "off"
  std::string machine = "native";
  std::string device = "cpu";
  bool is_device_given = false;
  bool tune = true, libraries = false;

  model::arch::LibraryRef library() const;  // embedded texts plus the folders
  // `timed`: the caller needs times of single kernels.
  run::Engine engine(bool timed = false) const;
};

struct Command {
  std::function<int()> action;  // set by the parsed subcommand; returns an exit code
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
};

void add_shared_flags(CLI::App& app, const std::shared_ptr<Shared>& shared);

// Ends the declaration of a command: adds the options that every command has; the action is run(shared, flags), or
// run(flags).
template <class Flags, class Run>
void set_action(CLI::App& app, Command& command, const std::shared_ptr<Flags>& flags, Run run) {
  add_shared_flags(app, command.shared);
  app.callback([flags, run, &command] {
    command.action = [flags, run, shared = command.shared] {
      if constexpr (std::is_invocable_v<Run, const Shared&, Flags&>)
        return run(*shared, *flags);
      else
        return run(*flags);
    };
  });
}

void add_demo(CLI::App& app, Command& command);
void add_train(CLI::App& app, Command& command);
void add_run(CLI::App& app, Command& command);
void add_chat(CLI::App& app, Command& command);
void add_tokenize(CLI::App& app, Command& command);
void add_quantize(CLI::App& app, Command& command);
void add_low_rank_correction(CLI::App& app, Command& command);
void add_recovery_training(CLI::App& app, Command& command);
void add_export(CLI::App& app, Command& command);
void add_merge(CLI::App& app, Command& command);
void add_equivalent_transform(CLI::App& app, Command& command);
void add_verify(CLI::App& app, Command& command);
void add_embed(CLI::App& app, Command& command);
void add_serve(CLI::App& app, Command& command);
void add_imatrix(CLI::App& app, Command& command);
void add_compare(CLI::App& app, Command& command);
void add_perplexity(CLI::App& app, Command& command);
void add_eval(CLI::App& app, Command& command);
void add_bench(CLI::App& app, Command& command);
void add_inspect(CLI::App& app, Command& command);
void add_compile(CLI::App& app, Command& command);
void add_format(CLI::App& app, Command& command);
void add_report(CLI::App& app, Command& command);
void add_data(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_cache(CLI::App& app, Command& command);
void add_pull(CLI::App& app, Command& command);
void add_list(CLI::App& app, Command& command);
void add_rm(CLI::App& app, Command& command);
void add_ps(CLI::App& app, Command& command);
void add_completion(CLI::App& app, Command& command);
void add_manual(CLI::App& app, Command& command);

// The commands of the applications that a program has besides those above, in the order of its help. Defined by the
// build (cmake/applications.cmake), so that no source of this floor names an application.
using AddCommand = void (*)(CLI::App& app, Command& command);
std::span<const AddCommand> application_commands();

// Becomes true at Ctrl-C, SIGTERM or SIGHUP after catch_interrupts() was called: the command then saves its work and
// returns Exit::interrupted, which becomes exit code 128 + signal. Without catch_interrupts(), and at a second signal,
// the program ends at once and removes its temporary files.
const std::atomic<bool>& interrupted();
// end_reads: Ctrl-C also interrupts a read from standard input; the other signals still end the program at once.
void catch_interrupts(bool end_reads = false);
void forget_interrupt();
// Whether this thread's command runs inside another program, which owns the signals and processes.
bool is_guest();

// Runs `work` in a process forked from a command's, and prints its errors as a command's errors are printed.
int report_errors(const std::function<int()>& work);

// The parser with all commands and their options.
std::unique_ptr<CLI::App> make_app(Command& command);

// Marks a command that saves its work when it is asked to stop. Ctrl-C, SIGTERM and SIGHUP are acknowledged at once
// with a line on stderr. A command that called catch_interrupts() but does not end within a second is terminated, which
// is safe because outputs are written atomically. While an object of this class exists the command may take as long as
// it needs. A second signal ends every command at once. Proved by tests/cli/system/interrupt_check.py.
class SavesWhenStopped {
 public:
  SavesWhenStopped();
  SavesWhenStopped(const SavesWhenStopped&) = delete;
  SavesWhenStopped& operator=(const SavesWhenStopped&) = delete;
  ~SavesWhenStopped();
};

}  // namespace lumen::cli
