#include "cli/infer/conversation.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/protected.h"
#include "base/log.h"
#include "base/messages/spelling.h"
#include "base/structured/json.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "cli/terminal/markdown.h"
#include "model/arch/chat/chat.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/session/step_plan.h"
#include "model/infer/tower/picture_prompt.h"
#include "model/serve/pictures/picture_chat.h"
#include "model/serve/pictures/picture_parts.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostNames = 1000;  // that completion offers
constexpr const char* kHelp =
    "  /help                this list\n"
    "  /clear               delete the conversation\n"
    "  /system TEXT         set the system message; without TEXT: show it\n"
    "  /set NAME VALUE      another value of an option from now on, as /set temp 0.3; /set lists them\n"
    "  /image FILE          show a picture with the next question\n"
    "  /model FILE          go on with another model\n"
    "  /stats               tokens, speed, and how full the context is\n"
    "  /regenerate          another answer to the last question\n"
    "  /undo                take the last question and its answer back\n"
    "  /history             show the conversation\n"
    "  /save FILE           write the conversation as JSON\n"
    "  /load FILE           go on with a conversation\n"
    "  /exit                end (also Ctrl-D)\n"
    "A line that ends in \\ goes on in the next one; lines between \"\"\" and \"\"\" are one message, and so is a text "
    "that "
    "is\npasted. Tab completes commands; the arrow keys and Ctrl-R find what was typed before.\n"
    "Ctrl-C stops an answer; twice it ends the program.\n";

// Commands that completion offers. Other spellings of them are taken, too.
constexpr std::string_view kCommands[] = {"/clear",      "/exit", "/help", "/history", "/image",  "/load", "/model",
                                          "/regenerate", "/save", "/set",  "/stats",   "/system", "/undo"};

// A message's content as text, with pictures by their names.
std::string shown(const ordered_json& content) {
  if (content.is_string()) return content;
  std::string out;
  for (const ordered_json& part : content)
    out += part.contains("text") ? part["text"].get<std::string>()
                                 : fmt::format("[{}] ", part["image_url"]["url"].get<std::string>());
  return out;
}

// Whether a content can be that of a message: text, or a list with pictures.
bool is_content(const ordered_json& content) {
  if (content.is_string()) return true;
  const auto is_part = [](const ordered_json& part) {
    if (!part.is_object()) return false;
    const ordered_json type = part.value("type", ordered_json()), url = part.value("image_url", ordered_json());
    return (type == "text" && part.value("text", ordered_json()).is_string()) ||
           (type == "image_url" && url.is_object() && url.value("url", ordered_json()).is_string());
  };
  return content.is_array() && std::all_of(content.begin(), content.end(), is_part);
}

ordered_json message(const char* role, const std::string& text) {
  ordered_json out = ordered_json::object();
  out["role"] = role;
  out["content"] = text;
  return out;
}

model::arch::Model read_model(const Shared& shared, const ChatFlags& flags, const model::arch::LibraryRef& library) {
  model::arch::Model model = flags.mapping.read(shared, library, flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  return model;
}

ChosenChat choose_chat_of(const ChatFlags& flags, model::arch::Model& model) {
  const bool carries_none = model.tokenizer->chat_template().empty();
  const model::templates::ChosenTemplate chosen = choose_chat(flags.template_name, flags.adapters, *model.tokenizer);
  model::arch::take_chat(model, chosen);
  if (flags.template_name.empty() && carries_none && chosen.name == "plain")
    note("the model carries no chat template; 'plain' is used (see --chat-template)");
  return {chosen.parse(), chosen.stops};
}

// The options of generation, complete for this model.
SamplingFlags finished(SamplingFlags sampling, const ChatModel& read) {
  sampling.finish(read.model, *read.library);
  auto& stops = sampling.generate.stops;
  stops.insert(stops.end(), read.chosen.stops.begin(), read.chosen.stops.end());
  return sampling;
}

// The options that /set changes: a parser that has those of generation alone.
struct SetOptions {
  explicit SetOptions(SamplingFlags& sampling) { sampling.add_flags(*chat); }
  CLI::App app{"", "lumen"};
  CLI::App* chat = app.add_subcommand("chat");
};

std::vector<std::string> names_of_options() {
  SamplingFlags sampling;
  const SetOptions options(sampling);
  std::vector<std::string> out;
  for (const CLI::Option* option : options.chat->get_options())
    if (const std::string name = option->get_lnames().empty() ? "" : option->get_lnames().front(); name != "help")
      out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

std::string speed(int64_t tokens, double seconds) {
  return fmt::format("{:.1f} tokens/s", tokens / std::max(seconds, 1e-9));
}

}  // namespace

ChatModel::ChatModel(const Shared& shared, const ChatFlags& flags)
    : library(shared.library()), model(read_model(shared, flags, library)), chosen(choose_chat_of(flags, model)) {}

ChatEngine::ChatEngine(const Shared& shared, const ChatFlags& flags, std::unique_ptr<ChatModel> model)
    : model_(std::move(model)),
      tower_(flags.mmproj.empty() ? flags.model : flags.mmproj),
      adapters_(flags.adapters.read(model_->model)),
      engine_(shared.engine()),
      loaded_(engine_, model_->model, adapters_),
      draft_(flags.draft, model_->library, engine_, model_->model) {
  use(flags.sampling);
}

void ChatEngine::use(const SamplingFlags& sampling) {
  SamplingFlags all = finished(sampling, *model_);
  all.invariance.choose(engine_, &all.session);
  note_length(loaded_, all.session);
  generator_ = std::make_unique<model::infer::Generator>(loaded_, all.session, all.sampling, all.generate,
                                                         draft_.make(model_->model, all.session));
  context_ = model::infer::session_options(model_->model, all.session).context;
  sampling_ = sampling;
}

PictureReader& ChatEngine::pictures() {
  if (!pictures_) {
    pictures_.emplace(model_->library, tower_, loaded_, sampling_.session.exact);
    use(sampling_);  // sessions that were made before read none
  }
  return *pictures_;
}

Conversation::Conversation(const Shared& shared, ChatFlags& flags, const ChatModel& model,
                           std::unique_ptr<ChatEngine> engine)
    : shared_(shared), flags_(flags), model_(model), engine_(std::move(engine)) {
  if (!flags.template_values.empty()) {
    parse_json(flags.template_values, "--chat-template-kwargs");
    more_ = ordered_json::parse(flags.template_values);
    if (!more_.is_object()) throw usage_error("--chat-template-kwargs needs a JSON object");
  }
  if (!flags.load.empty()) load(flags.load);
  if (!flags.system.empty() || flags.load.empty()) set_system(flags.system);
}

std::string Conversation::prompt(bool ids) {
  if (flags_.prompt_given) messages_.push_back(message("user", flags_.prompt));
  const model::text::Tokenizer& tokenizer = *read().model.tokenizer;
  std::string out;
  for (const model::text::TokenId id : model::templates::chat_tokens(tokenizer, read().chosen.chat, messages_, more_))
    out += ids ? fmt::format("{}{}", out.empty() ? "" : " ", id) : tokenizer.bytes(id);
  return out;
}

void Conversation::ask(const std::string& text, bool is_terminal) {
  model::serve::MixedContent content;
  for (const std::string& file : attached_) content.add_picture(file);
  content.add_text(text);
  messages_.push_back(message("user", ""));
  messages_.back()["content"] = content.json();
  try {
    answer(is_terminal);
    attached_.clear();
  } catch (const Error&) {
    drop("user");  // a question without an answer is removed from the conversation
    throw;
  }
}

bool Conversation::command(const std::string& line, bool is_terminal) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const size_t from = space == std::string::npos ? space : line.find_first_not_of(' ', space);
  std::string rest = from == std::string::npos ? "" : line.substr(from);
  // Completion leaves a space at the end of a name.
  if (name != "/system") rest.erase(rest.find_last_not_of(' ') + 1);
  if (name == "/exit" || name == "/quit" || name == "/bye") return false;
  if (name == "/help" || name == "/?") {
    std::cerr << kHelp;
  } else if (name == "/clear" || name == "/new") {
    const std::string system = system_text();
    messages_ = ordered_json::array();
    attached_.clear();
    pictures_.clear();
    set_system(system);
    note("the conversation begins anew");
  } else if (name == "/system") {
    if (rest.empty()) {
      note(system_text().empty() ? "no system message" : system_text());
    } else {
      set_system(rest);
      note("from now on");
    }
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/image") {
    attach(rest);
  } else if (name == "/model") {
    use_model(rest);
  } else if (name == "/stats") {
    show_stats();
  } else if (name == "/regenerate" || name == "/regen" || name == "/retry") {
    if (!drop("assistant")) {
      note("there is no answer yet");
    } else {
      answer(is_terminal);
    }
  } else if (name == "/undo") {
    drop("assistant");
    note(drop("user") ? "taken back" : "there is no question yet");
  } else if (name == "/history") {
    if (messages_.empty()) note("the conversation is empty");
    for (const auto& m : messages_) note(fmt::format("{}: {}", m["role"].get<std::string>(), shown(m["content"])));
  } else if (name == "/save" || name == "/load") {
    if (rest.empty()) {
      note(name + " needs the name of a file");
    } else if (name == "/save") {
      save(rest);
    } else {
      load(rest);
    }
  } else {
    note(fmt::format("unknown command {}; /help lists them", name));
  }
  return true;
}

Completion Conversation::complete(const std::string& before) {
  Completion out;
  if (!before.starts_with('/')) return out;
  const size_t space = before.find(' ');
  const std::string command = before.substr(0, space);
  out.from = space == std::string::npos ? 0 : before.find_last_of(' ') + 1;
  const std::string word = before.substr(out.from);
  const auto offer = [&](std::string name) {
    if (name.starts_with(word)) out.words.push_back(std::move(name));
  };
  if (space == std::string::npos) {
    for (const std::string_view name : kCommands) offer(std::string(name));
  } else if (command == "/set" && before.find_first_not_of(' ', space) >= out.from) {
    for (std::string& name : names_of_options()) offer(std::move(name));
  } else if (command == "/save" || command == "/load" || command == "/model" || command == "/image") {
    // Names of files may have spaces: all that follows the command is one.
    out.from = std::min(before.find_first_not_of(' ', space), before.size());
    const std::filesystem::path typed = before.substr(out.from);
    const std::filesystem::path folder = typed.has_parent_path() ? typed.parent_path() : std::filesystem::path(".");
    std::error_code error;
    for (const std::filesystem::path& path : list_folder(folder, error)) {
      const std::string name = path.filename().string();
      if (!name.starts_with(typed.filename().string()) || (name.starts_with('.') && typed.filename().empty())) continue;
      if (out.words.size() == kMostNames) break;
      std::error_code unknown;
      out.words.push_back(
          (typed.has_parent_path() ? typed.parent_path() / name : std::filesystem::path(name)).string() +
          (std::filesystem::is_directory(path, unknown) ? "/" : ""));
    }
    std::sort(out.words.begin(), out.words.end());
  }
  return out;
}

std::string Conversation::system_text() const {
  return !messages_.empty() && messages_[0]["role"] == "system" ? messages_[0]["content"].get<std::string>() : "";
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_[0]["role"] == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
}

bool Conversation::drop(const char* role) {
  if (messages_.empty() || messages_.back()["role"] != role) return false;
  messages_.erase(messages_.end() - 1);
  return true;
}

void Conversation::save(const std::string& file) const {
  refuse_protected(file, "name another file");
  ordered_json root = ordered_json::object();
  root["messages"] = messages_;
  write_file_atomic(file, root.dump(2) + "\n");
  note(fmt::format("{} messages written to {}", messages_.size(), file));
}

void Conversation::load(const std::string& file) {
  const std::string text = read_file(file, 64 << 20);
  parse_json(text, file);
  const ordered_json root = ordered_json::parse(text);
  const ordered_json list = root.is_object() && root.contains("messages") ? root["messages"] : root;
  if (!list.is_array()) throw user_error("{}: no list of messages", file);
  for (const auto& m : list) {
    const bool whole = m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") &&
                       is_content(m["content"]);
    if (!whole) throw user_error("{}: a message lacks \"role\" or \"content\"", file);
  }
  // Pictures are read now, so that a missing one does not fail each later answer.
  ordered_json shown_ones = list;
  if (engine_)
    for (const model::serve::PicturePart& part : model::serve::take_pictures(shown_ones)) (void)picture(part.address);
  messages_ = list;
  note(fmt::format("{} messages read from {}", messages_.size(), file));
}

// "temp 0.3", "--top-k 1", "stop END", "parameter temperature 1", "system TEXT".
void Conversation::set(const std::string& words) {
  std::istringstream in(words);
  std::string name, value;
  in >> name;
  if (name == "parameter") in >> name;  // as ollama has it
  std::getline(in >> std::ws, value);
  if (name == "system") {
    set_system(value);
    note("from now on");
    return;
  }
  if (name.empty()) {
    std::string all;
    for (const std::string& known : names_of_options()) all += (all.empty() ? "" : " ") + known;
    note("/set NAME VALUE, with one of these names: " + all);
    return;
  }
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  SamplingFlags changed = flags_.sampling;
  SetOptions options(changed);
  const CLI::Option* option = options.chat->get_option_no_throw("--" + name);
  if (!option || name == "help") {
    const std::string near = did_you_mean_any(name, names_of_options());
    throw Error(Exit::usage, fmt::format("'{}' is no option of generation", name), near + " /set lists them");
  }
  if (value.empty() && option->get_expected_min() > 0) {
    note(fmt::format("{}: {}", name, option->get_description()));
    return;
  }
  try {
    std::vector<std::string> arguments = {fmt::format("--{}{}{}", name, value.empty() ? "" : "=", value), "chat"};
    options.app.parse(arguments);  // the last word comes first
  } catch (const CLI::ParseError& error) {
    throw usage_error("{}", error.what());
  }
  engine_->use(changed);
  flags_.sampling = changed;
  note(value.empty() ? name + " from now on" : fmt::format("{} is {} from now on", name, value));
}

void Conversation::use_model(const std::string& file) {
  if (file.empty()) {
    note(flags_.model);
    return;
  }
  // Both models are in memory until the other one is ready, so that the chat can go on when it fails.
  ChatFlags other = flags_;
  other.model = file;
  other.mmproj.clear();  // it is that of the model before
  engine_ = std::make_unique<ChatEngine>(shared_, other, std::make_unique<ChatModel>(shared_, other));
  flags_.model = file;
  flags_.mmproj.clear();
  pictures_.clear();
  totals_ = {};
  note(fmt::format("{} answers from now on", file));
}

void Conversation::show_stats() const {
  const auto used = std::ssize(engine_->generator().tokens());
  note(fmt::format("{} answers | prompts: {} tokens, {} | generation: {} tokens, {}{} | context: {} of {} tokens",
                   totals_.answers, totals_.read, speed(totals_.read, totals_.read_seconds), totals_.made,
                   speed(totals_.made, totals_.made_seconds), draft_text(totals_.drafted, totals_.accepted), used,
                   engine_->context()));
}

const model::infer::PictureRef& Conversation::picture(const std::string& file) {
  PictureReader& reader = engine_->pictures();
  if (const auto known = pictures_.find(file); known != pictures_.end()) return known->second;
  return pictures_.emplace(file, reader.read(std::filesystem::path(file))).first->second;
}

// A picture is read when it is named, so that a mistake shows before the question is typed.
void Conversation::attach(const std::string& file) {
  if (file.empty()) {
    note(attached_.empty() ? "/image FILE: a picture for the next question"
                           : fmt::format("with the next question: {}", fmt::join(attached_, ", ")));
    return;
  }
  const model::infer::PictureRef& seen = picture(file);
  attached_.push_back(file);
  note(fmt::format("{} goes with the next question ({} tokens)", file, seen->ids.size()));
}

std::vector<model::text::TokenId> Conversation::tokens() {
  const model::text::Tokenizer& tokenizer = *read().model.tokenizer;
  ordered_json messages = messages_;
  const std::vector<model::serve::PicturePart> parts = model::serve::take_pictures(messages);
  if (parts.empty()) return model::templates::chat_tokens(tokenizer, read().chosen.chat, messages_, more_);
  std::vector<model::infer::PictureRef> shown_ones;
  for (const model::serve::PicturePart& part : parts) shown_ones.push_back(picture(part.address));
  const model::arch::PictureText& how = engine_->pictures().text();
  const model::templates::ChatRenderer renderer(tokenizer, read().chosen.chat);
  const model::templates::ChatPrompt prompt =
      model::serve::picture_prompt(renderer, messages, more_, model::templates::PromptEnd::opening, how);
  return model::infer::with_pictures(tokenizer, prompt.ids, how, shown_ones);
}

void Conversation::answer(bool is_terminal) {
  const std::vector<model::text::TokenId> tokens = this->tokens();
  AnswerOutput output(flags_.markdown);
  const auto result = engine_->generator().answer(
      tokens, true, [&](std::string_view text) { output.put(text); }, [] { return !interrupted().load(); });
  output.finish();
  put("\n");
  const bool stopped = result.reason == model::infer::EndReason::interrupted;
  if (stopped) {
    note("(stopped)");
    forget_interrupt();
  }
  if (result.reason == model::infer::EndReason::context)
    note("the context is full: /clear, a greater --ctx-size, or --context-shift");
  ++totals_.answers;
  totals_.read += result.read;
  totals_.made += result.made;
  totals_.drafted += result.drafted;
  totals_.accepted += result.accepted;
  totals_.read_seconds += result.read_seconds;
  totals_.made_seconds += result.made_seconds;
  if (flags_.times) {
    note(fmt::format("read {} tokens, {} | wrote {} tokens, {}{}", result.read, speed(result.read, result.read_seconds),
                     result.made, speed(result.made, result.made_seconds),
                     draft_text(result.drafted, result.accepted)));
  } else if (is_terminal) {
    note(fmt::format("({} tokens, {})", result.made, speed(result.made, result.made_seconds)));
  }
  std::string text = result.text;
  text.erase(0, text.find_first_not_of(" \n"));
  messages_.push_back(message("assistant", text));
}

}  // namespace lumen::cli
