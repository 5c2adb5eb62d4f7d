// Completion scripts for shells.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "cli/reference/commands.h"

namespace lumen::cli {
namespace {

std::string last_word(const std::string& name) {
  return name.substr(name.rfind(' ') + 1);
}

// The command's words after "lumen": " data stats"; empty for the program itself.
std::string path_of(const CommandEntry& command) {
  const size_t space = command.name.find(' ');
  return space == std::string::npos ? "" : command.name.substr(space);
}

void each_command(const CommandEntry& command, const std::function<void(const CommandEntry&)>& see) {
  see(command);
  for (const CommandEntry& sub : command.commands) each_command(sub, see);
}

std::vector<std::string> words_of(const CommandEntry& command) {
  std::vector<std::string> words;
  for (const CommandEntry& sub : command.commands) words.push_back(last_word(sub.name));
  return words;
}

// The help up to its first full stop or line break, without the characters that the shell would interpret.
std::string short_help(const std::string& help, const std::string& without) {
  std::string out = help.substr(0, std::min(help.find(". "), help.find('\n')));
  std::erase_if(out, [&](char c) { return without.find(c) != std::string::npos; });
  return out;
}

// The name of the zsh function that completes a command: _lumen_data_stats for "lumen data stats".
std::string function_of(const CommandEntry& command) {
  std::string name = "_" + command.name;
  std::ranges::replace_if(name, [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
}

}  // namespace

std::string bash_completion(const CommandEntry& program) {
  std::string paths, cases;
  each_command(program, [&](const CommandEntry& c) {
    if (!path_of(c).empty()) paths += fmt::format("{}\"{}\"", paths.empty() ? "" : " | ", path_of(c));
    std::vector<std::string> names;
    std::string values;
    for (const OptionEntry& o : c.options) {
      names.insert(names.end(), o.names.begin(), o.names.end());
      if (!o.choices.empty())
        values += fmt::format("        {}) values=\"{}\" ;;\n", fmt::join(o.names, " | "), fmt::join(o.choices, " "));
    }
    cases += fmt::format("    \"{}\")\n      options=\"{}\"\n      commands=\"{}\"\n", path_of(c),
                         fmt::join(names, " "), fmt::join(words_of(c), " "));
    if (!values.empty()) cases += fmt::format("      case \"$before\" in\n{}      esac\n", values);
    cases += "      ;;\n";
  });
  return fmt::format(
      R"(# Completion of lumen for bash. Install: lumen shell-completion bash > /etc/bash_completion.d/lumen
_lumen() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path="" options="" commands="" values="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{}  esac
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word"; compgen -f -- "$word")
  fi
}}
complete -o filenames -F _lumen lumen
)",
      paths, cases);
}

std::string zsh_completion(const CommandEntry& program) {
  std::string out =
      "#compdef lumen\n# Completion of lumen for zsh. Install: lumen shell-completion zsh > DIR/_lumen, DIR of "
      "$fpath\n";
  each_command(program, [&](const CommandEntry& c) {
    out += fmt::format("\n{}() {{\n  local -a commands\n", function_of(c));
    std::string arguments;
    for (const OptionEntry& o : c.options)
      for (const std::string& name : o.names) {
        arguments += fmt::format(" \\\n    '{}[{}]", name, short_help(o.help, "'[]\\`$"));
        if (!o.type.empty())
          arguments += o.choices.empty()
                           ? fmt::format(":{}:_files", short_help(o.type, "':[]"))
                           : fmt::format(":{}:({})", short_help(o.type, "':[]"), fmt::join(o.choices, " "));
        arguments += "'";
      }
    if (c.commands.empty()) {
      out += fmt::format("  _arguments{} \\\n    '*:file:_files'\n}}\n", arguments);
      return;
    }
    out += "  commands=(\n";
    for (const CommandEntry& sub : c.commands)
      out += fmt::format("    '{}:{}'\n", last_word(sub.name), short_help(sub.help, "':\\`$"));
    out += fmt::format("  )\n  local state line\n  _arguments -C{} \\\n    '1: :->command' '*:: :->rest'\n", arguments);
    out += "  case $state in\n    command) _describe command commands ;;\n    rest)\n      case $line[1] in\n";
    for (const CommandEntry& sub : c.commands)
      out += fmt::format("        {}) {} ;;\n", last_word(sub.name), function_of(sub));
    out += "      esac\n      ;;\n  esac\n}\n";
  });
  return out + "\n_lumen \"$@\"\n";
}

std::string fish_completion(const CommandEntry& program) {
  std::string out =
      "# Completion of lumen for fish. Install: lumen shell-completion fish > ~/.config/fish/completions/lumen.fish\n";
  const auto add = [&](const std::string& condition, const OptionEntry& o) {
    out += "complete -c lumen" + condition;
    for (const std::string& name : o.names)
      out += name.starts_with("--") ? " -l " + name.substr(2)
             : name.size() == 2     ? " -s " + name.substr(1)
                                    : " -o " + name.substr(1);
    if (!o.choices.empty())
      out += fmt::format(" -x -a '{}'", fmt::join(o.choices, " "));
    else if (!o.type.empty())
      out += " -r";
    out += fmt::format(" -d '{}'\n", short_help(o.help, "'\\"));
  };
  each_command(program, [&](const CommandEntry& c) {
    std::string condition = " -n __fish_use_subcommand";
    if (!path_of(c).empty()) {
      const std::string above = path_of(c).substr(1, path_of(c).rfind(' ') > 0 ? path_of(c).rfind(' ') - 1 : 0);
      condition = fmt::format(" -n '__fish_seen_subcommand_from {}{}'", last_word(c.name),
                              above.empty() ? "" : "; and __fish_seen_subcommand_from " + above);
    }
    for (const CommandEntry& sub : c.commands)
      out += fmt::format("complete -c lumen{} -a {} -d '{}'\n", condition, last_word(sub.name),
                         short_help(sub.help, "'\\"));
    for (const OptionEntry& o : c.options) add(condition, o);
  });
  return out;
}

}  // namespace lumen::cli
