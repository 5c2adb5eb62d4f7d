// lumen completion, lumen manual
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/reference/commands.h"
#include "cli/settings/declare.h"
#include "cli/version.h"

namespace lumen::cli {
namespace {

struct ManualFlags {
  std::vector<std::string> words;
  std::string form = "man";
};

CommandEntry program() {
  Command unused;
  return describe(*make_app(unused));
}

int print_manual(const ManualFlags& flags) {
  const CommandEntry all = program();
  const CommandEntry* const command = find_command(all, flags.words);
  if (!command)
    throw Error(Exit::usage, fmt::format("'{}' is no command", fmt::join(flags.words, " ")),
                "`lumen --help` lists them");
  put_text(flags.form == "man"        ? manual_page(*command, kVersion)
           : flags.form == "markdown" ? markdown_reference(*command)
                                      : option_table(*command));
  return 0;
}

}  // namespace

void add_completion(CLI::App& app, Command& command) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub =
      app.add_subcommand("shell-completion", "Print a script that completes commands and options in a shell");
  add_setting(*sub, "shell", *shell);
  sub->footer("Examples:\n  lumen shell-completion bash > /etc/bash_completion.d/lumen");
  sub->callback([shell, &command] {
    command.action = [shell] {
      const CommandEntry all = program();
      put_text(*shell == "bash" ? bash_completion(all) : *shell == "zsh" ? zsh_completion(all) : fish_completion(all));
      return 0;
    };
  });
}

void add_manual(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ManualFlags>();
  CLI::App* sub = app.add_subcommand("manual", "Print the manual of a command, as a man page or as Markdown");
  add_settings(*sub, "command", flags->words, "--form", flags->form);
  sub->footer("Examples:\n  lumen manual train | man -l -\n  lumen manual --form markdown > commands.md");
  sub->callback([flags, &command] { command.action = [flags] { return print_manual(*flags); }; });
}

}  // namespace lumen::cli
