// lumen chat -m MODEL
#include "model/template/chat.h"

#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/protected.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/infer/drafts.h"
#include "cli/infer/line_input.h"
#include "cli/infer/mapping.h"
#include "cli/infer/sampling.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "model/arch/chat/chat.h"
#include "model/arch/checkpoint/read.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp =
    "  /help                this list\n"
    "  /clear               forget the conversation\n"
    "  /system TEXT         say how the model shall answer; without TEXT: what it was told\n"
    "  /regenerate          another answer to the last question\n"
    "  /undo                take the last question and its answer back\n"
    "  /history             show the conversation\n"
    "  /save FILE           write the conversation as JSON\n"
    "  /load FILE           go on with a conversation\n"
    "  /exit                end (also Ctrl-D)\n"
    "A line that ends in \\ goes on in the next one; lines between \"\"\" and \"\"\" are one message.\n"
    "Ctrl-C stops an answer; twice it ends the program.\n";

struct ChatFlags {
  std::string model, system, template_name, template_values, prompt, load;
  SamplingFlags sampling;
  AdapterFlags adapters;
  Mapping mapping;
  DraftFlags draft;
  bool times = false, show_prompt = false, ids = false;
  bool prompt_given = false;  // an empty prompt counts, too
};

// The parsed template and the strings that end an answer.
struct Chosen {
  model::ChatTemplate chat;
  std::vector<std::string> stops;
};

Chosen choose_template(const ChatFlags& flags, model::Model& model) {
  const bool carries_none = model.tokenizer->chat_template().empty();
  const model::ChosenTemplate chosen = choose_chat(flags.template_name, flags.adapters, *model.tokenizer);
  model::take_chat(model, chosen);
  if (flags.template_name.empty() && carries_none && chosen.name == "plain")
    note("the model carries no chat template; 'plain' is used (see --chat-template)");
  return {chosen.parse(), chosen.stops};
}

class Conversation {
 public:
  // Without a generator prompts can only be printed.
  Conversation(const ChatFlags& flags, const model::Tokenizer& tokenizer, Chosen chosen, model::Generator* generator)
      : flags_(flags), tokenizer_(tokenizer), chosen_(std::move(chosen)), generator_(generator) {
    if (!flags.template_values.empty()) {
      parse_json(flags.template_values, "--chat-template-kwargs");
      more_ = ordered_json::parse(flags.template_values);
      if (!more_.is_object()) throw usage_error("--chat-template-kwargs needs a JSON object");
    }
    if (!flags.load.empty()) load(flags.load);
    if (!flags.system.empty() || flags.load.empty()) set_system(flags.system);
  }

  // The exact input of the model for the next answer; control tokens appear by name.
  std::string prompt(bool ids) {
    if (flags_.prompt_given) messages_.push_back(message("user", flags_.prompt));
    std::string out;
    for (const model::TokenId id : model::chat_tokens(tokenizer_, chosen_.chat, messages_, more_))
      out += ids ? fmt::format("{}{}", out.empty() ? "" : " ", id) : tokenizer_.bytes(id);
    return out;
  }

  void ask(const std::string& text) {
    messages_.push_back(message("user", text));
    try {
      answer();
    } catch (const Error&) {
      drop("user");  // a question without an answer is removed from the conversation
      throw;
    }
  }

  // Runs a command of the user; false when it ends the conversation.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const size_t from = space == std::string::npos ? space : line.find_first_not_of(' ', space);
    const std::string rest = from == std::string::npos ? "" : line.substr(from);
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/help" || name == "/?") {
      std::cerr << kHelp;
    } else if (name == "/clear" || name == "/new") {
      const std::string system = system_text();
      messages_ = ordered_json::array();
      set_system(system);
      note("the conversation begins anew");
    } else if (name == "/system") {
      if (rest.empty()) {
        note(system_text().empty() ? "no system message" : system_text());
      } else {
        set_system(rest);
        note("from now on");
      }
    } else if (name == "/regenerate" || name == "/regen" || name == "/retry") {
      if (!drop("assistant")) {
        note("there is no answer yet");
      } else {
        answer();
      }
    } else if (name == "/undo") {
      drop("assistant");
      note(drop("user") ? "taken back" : "there is no question yet");
    } else if (name == "/history") {
      if (messages_.empty()) note("the conversation is empty");
      for (const auto& m : messages_)
        note(fmt::format("{}: {}", m["role"].get<std::string>(), m["content"].get<std::string>()));
    } else if (name == "/save" || name == "/load") {
      if (rest.empty()) {
        note(name + " needs the name of a file");
      } else if (name == "/save") {
        refuse_protected(rest, "name another file");
        ordered_json root = ordered_json::object();
        root["messages"] = messages_;
        write_file_atomic(rest, root.dump(2) + "\n");
        note(fmt::format("{} messages written to {}", messages_.size(), rest));
      } else {
        load(rest);
      }
    } else {
      note(fmt::format("unknown command {}; /help lists them", name));
    }
    return true;
  }

 private:
  static ordered_json message(const char* role, const std::string& text) {
    ordered_json out = ordered_json::object();
    out["role"] = role;
    out["content"] = text;
    return out;
  }

  std::string system_text() const {
    return !messages_.empty() && messages_[0]["role"] == "system" ? messages_[0]["content"].get<std::string>() : "";
  }

  void set_system(const std::string& text) {
    if (!messages_.empty() && messages_[0]["role"] == "system") messages_.erase(messages_.begin());
    if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
  }

  bool drop(const char* role) {
    if (messages_.empty() || messages_.back()["role"] != role) return false;
    messages_.erase(messages_.end() - 1);
    return true;
  }

  void load(const std::string& file) {
    const std::string text = read_file(file, 64 << 20);
    parse_json(text, file);
    const ordered_json root = ordered_json::parse(text);
    const ordered_json list = root.is_object() && root.contains("messages") ? root["messages"] : root;
    if (!list.is_array()) throw user_error("{}: no list of messages", file);
    for (const auto& m : list) {
      const bool whole = m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") &&
                         m["content"].is_string();
      if (!whole) throw user_error("{}: a message lacks \"role\" or \"content\"", file);
    }
    messages_ = list;
    note(fmt::format("{} messages read from {}", messages_.size(), file));
  }

  void answer() {
    const auto tokens = model::chat_tokens(tokenizer_, chosen_.chat, messages_, more_);
    const auto result = generator_->answer(tokens, true, put_text, [] { return !interrupted().load(); });
    put("\n");
    const bool stopped = result.reason == model::EndReason::interrupted;
    if (stopped) {
      note("(stopped)");
      forget_interrupt();
    }
    if (result.reason == model::EndReason::context)
      note("the context is full: /clear, a greater --ctx-size, or --context-shift");
    if (flags_.times)
      note(fmt::format("read {} tokens, {:.1f} tokens/s | wrote {} tokens, {:.1f} tokens/s{}", result.read,
                       result.read / std::max(result.read_seconds, 1e-9), result.made,
                       result.made / std::max(result.made_seconds, 1e-9), draft_text(result.drafted, result.accepted)));
    std::string text = result.text;
    text.erase(0, text.find_first_not_of(" \n"));
    messages_.push_back(message("assistant", text));
  }

  const ChatFlags& flags_;
  const model::Tokenizer& tokenizer_;
  Chosen chosen_;
  model::Generator* generator_;
  ordered_json messages_ = ordered_json::array(), more_ = ordered_json::object();
};

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
  const model::LibraryRef library = shared.library();
  model::Model model = flags.mapping.read(shared, library, flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  flags.sampling.finish(model, *library);
  Chosen chosen = choose_template(flags, model);
  auto& stops = flags.sampling.generate.stops;
  stops.insert(stops.end(), chosen.stops.begin(), chosen.stops.end());
  if (flags.show_prompt) {
    put_text(Conversation(flags, *model.tokenizer, std::move(chosen), nullptr).prompt(flags.ids));
    if (flags.ids || isatty(STDOUT_FILENO) != 0) put("\n");
    return exit_code(Exit::ok);
  }
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine();
  const model::LoadedModel loaded(engine, model, adapters);
  note_length(loaded, flags.sampling.session);
  DraftChoice draft(flags.draft, library, engine, model);
  model::Generator generator(loaded, flags.sampling.session, flags.sampling.sampling, flags.sampling.generate,
                             draft.make(model, flags.sampling.session));
  Conversation conversation(flags, *model.tokenizer, std::move(chosen), &generator);
  LineInput input;
  catch_interrupts(true);
  if (input.terminal()) note("ask, and press Enter; /help lists commands, Ctrl-D ends");
  if (flags.prompt_given) conversation.ask(flags.prompt);
  for (;;) {
    std::string message;
    const auto status = read_message(input, &message);
    if (status == LineInput::Status::interrupted) {
      note("\n(Ctrl-C once more ends; so does /exit)");
      // A second Ctrl-C ends the program, unless something is typed first.
      std::string line;
      const auto again = input.read("> ", &line);
      if (again == LineInput::Status::interrupted || again == LineInput::Status::end)
        return exit_code(Exit::interrupted);
      forget_interrupt();
      message = line;
    } else if (status == LineInput::Status::end) {
      break;
    }
    if (model::utf8_valid_run(message, 0) != message.size()) {
      note("that is no valid UTF-8; is the terminal set to UTF-8?");
      continue;
    }
    if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
    try {
      if (!message.starts_with('/')) {
        conversation.ask(message);
      } else if (!conversation.command(message)) {
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
  CLI::App* sub = app.add_subcommand("chat", "Talk with a model");
  sub->add_option("-m,--model,--model_name_or_path,model", flags->model, "GGUF file or Hugging Face folder")
      ->check(reads(Reads::model))
      ->required()
      ->type_name("FILE");
  sub->add_option("--system,--system-prompt", flags->system, "How the model shall answer");
  auto* prompt = sub->add_option("-p,--prompt", flags->prompt, "The first question");
  auto* load = sub->add_option("--load", flags->load, "Go on with a conversation, as /save writes it")
                   ->check(reads(Reads::file))
                   ->type_name("FILE");
  sub->add_option("--chat-template,--chat-template-file", flags->template_name,
                  "Template of the conversation: a file with Jinja, or plain, chatml; default: the model's own")
      ->check(reads(Reads::file))
      ->type_name("FILE|NAME");
  sub->add_option("--chat-template-kwargs", flags->template_values, "More values for the template, as JSON")
      ->type_name("JSON");
  sub->add_flag("--times", flags->times, "Tell tokens and their rates after each answer");
  auto* show =
      sub->add_flag("--show-prompt", flags->show_prompt,
                    "Print exactly what the model would read (--system, --load, -p through the template), and end");
  sub->add_flag("--ids", flags->ids, "With --show-prompt: its token ids")->needs(show);
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
