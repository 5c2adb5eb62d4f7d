// lumen chat -m MODEL
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/infer/conversation.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "cli/terminal/line_input.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

// Reads one message: a line, lines joined by \ at their ends, or lines between """.
LineInput::Status read_message(LineInput& input, std::string* out) {
  out->clear();
  std::string line;
  auto status = input.read("> ", &line);
  if (status != LineInput::Status::line) return status;
  constexpr std::string_view kBlock = "\"\"\"";
  if (line.starts_with(kBlock)) {
    line.erase(0, kBlock.size());
    while (!line.ends_with(kBlock)) {
      *out += line + "\n";
      status = input.read(". ", &line);
      if (status != LineInput::Status::line) return status;
    }
    line.erase(line.size() - kBlock.size());
    *out += line;
    return status;
  }
  while (line.ends_with('\\')) {
    line.pop_back();
    *out += line + "\n";
    status = input.read(". ", &line);
    if (status != LineInput::Status::line) return status;
  }
  *out += line;
  return status;
}

int chat(const Shared& shared, ChatFlags& flags) {
  auto model = std::make_unique<ChatModel>(shared, flags);
  const ChatModel& read = *model;
  if (flags.show_prompt) {
    put_text(Conversation(shared, flags, read, nullptr).prompt(flags.ids));
    if (flags.ids || isatty(STDOUT_FILENO) != 0) put("\n");
    return exit_code(Exit::ok);
  }
  Conversation conversation(shared, flags, read, std::make_unique<ChatEngine>(shared, flags, std::move(model)));
  LineInput input({.history = flags.history ? "chat_history" : "", .complete = Conversation::complete});
  catch_interrupts(true);
  if (input.terminal()) note("type a question and press Enter; /help lists commands, Ctrl-D ends");
  if (flags.prompt_given) conversation.ask(flags.prompt, input.terminal());
  for (;;) {
    std::string message;
    const auto status = read_message(input, &message);
    if (status == LineInput::Status::interrupted) {
      note("\n(Ctrl-C once more ends; so does /exit)");
      // A second Ctrl-C ends the program, unless something is typed first.
      forget_interrupt();
      const auto again = read_message(input, &message);
      if (again == LineInput::Status::interrupted || again == LineInput::Status::end)
        return exit_code(Exit::interrupted);
    } else if (status == LineInput::Status::end) {
      break;
    }
    if (model::text::utf8_valid_run(message, 0) != message.size()) {
      note("that is no valid UTF-8; is the terminal set to UTF-8?");
      continue;
    }
    if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
    input.remember(message);
    try {
      if (!message.starts_with('/')) {
        conversation.ask(message, input.terminal());
      } else if (!conversation.command(message, input.terminal())) {
        break;
      }
    } catch (const Error& error) {
      if (!input.terminal()) throw;
      // An error in one message must not end the conversation.
      warn(error.what());
      if (!error.hint().empty()) note("  hint: " + error.hint());
    }
  }
  if (input.terminal()) std::cerr << "\n";
  return exit_code(Exit::ok);
}

}  // namespace

void add_chat(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* sub = app.add_subcommand("chat", "Chat with a model");
  add_setting(*sub, "--model", flags->model);
  add_setting(*sub, "--mmproj", flags->mmproj);
  add_setting(*sub, "--system", flags->system);
  auto* prompt = add_setting(*sub, "--prompt", flags->prompt);
  auto* load = add_setting(*sub, "--load", flags->load);
  add_setting(*sub, "--chat-template", flags->template_name);
  add_setting(*sub, "--chat-template-kwargs", flags->template_values);
  add_setting(*sub, "--times", flags->times);
  add_setting(*sub, "--markdown", flags->markdown);
  add_setting(*sub, "--history", flags->history);
  auto* show = add_setting(*sub, "--show-prompt", flags->show_prompt);
  add_setting(*sub, "--ids", flags->ids)->needs(show);
  flags->sampling.add_flags(*sub);
  flags->adapters.add_flags(*sub);
  flags->mapping.add_flags(*sub);
  flags->draft.add_flags(*sub, flags->sampling.generate.draft);
  sub->footer(
      "Examples:\n"
      "  lumen chat -m model.gguf\n"
      "  lumen chat -m model.gguf --system \"한국어로 짧게 답해.\" --temp 0.3\n"
      "  lumen chat -m model.gguf --chat-template-kwargs '{\"enable_thinking\": false}'\n"
      "  lumen chat -m model.gguf -p \"Hello\" --show-prompt\n"
      "  echo \"안녕?\" | lumen chat -m model.gguf");
  add_shared_flags(*sub, command.shared);
  sub->callback([sub, flags, prompt, load, &command] {
    flags->prompt_given = prompt->count() > 0;
    if (flags->show_prompt && !flags->prompt_given && load->count() == 0)
      throw usage_error("--show-prompt shows a conversation: give -p, or --load");
    flags->draft.require_use(*sub);
    command.action = [flags, shared = command.shared] { return chat(*shared, *flags); };
  });
}

}  // namespace lumen::cli
