// The conversation of `lumen chat`: its messages, its model, and the commands that begin with a slash.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/infer/drafts.h"
#include "cli/infer/mapping.h"
#include "cli/infer/sampling.h"
#include "cli/pictures/pictures.h"
#include "cli/terminal/line_editor.h"
#include "model/templates/chat.h"

namespace lumen::cli {

struct ChatFlags {
  std::string model, mmproj, system, template_name, template_values, prompt, load;
  SamplingFlags sampling;
  AdapterFlags adapters;
  Mapping mapping;
  DraftFlags draft;
  bool times = false, show_prompt = false, ids = false, markdown = true, history = true;
  bool prompt_given = false;  // an empty prompt counts, too
};

// The parsed template and the strings that end an answer.
struct ChosenChat {
  model::templates::ChatTemplate chat;
  std::vector<std::string> stops;
};

// A model that was read for a chat, with its tokenizer and template.
struct ChatModel {
  ChatModel(const Shared& shared, const ChatFlags& flags);

  model::arch::LibraryRef library;
  model::arch::Model model;
  ChosenChat chosen;
};

// The model on its device, generating with one set of options.
class ChatEngine {
 public:
  ChatEngine(const Shared& shared, const ChatFlags& flags, std::unique_ptr<ChatModel> model);
  // Generates with other options from now on; Error if they do not fit the model, which keeps those before.
  void use(const SamplingFlags& sampling);
  const ChatModel& read() const { return *model_; }
  model::infer::Generator& generator() { return *generator_; }
  // Reads pictures from now on. Error for models that read none.
  PictureReader& pictures();
  int64_t context() const { return context_; }  // tokens

 private:
  std::unique_ptr<ChatModel> model_;
  std::string tower_;  // the file or folder that has it
  SamplingFlags sampling_;
  std::vector<model::arch::ScaledAdapter> adapters_;
  run::Engine engine_;
  model::infer::LoadedModel loaded_;
  DraftChoice draft_;
  std::optional<PictureReader> pictures_;  // of the first picture on
  std::unique_ptr<model::infer::Generator> generator_;
  int64_t context_ = 0;
};

class Conversation {
 public:
  // Without `engine` prompts can only be printed.
  Conversation(const Shared& shared, ChatFlags& flags, const ChatModel& model, std::unique_ptr<ChatEngine> engine);

  // The exact input of the model for the next answer; control tokens appear by name.
  std::string prompt(bool ids);
  // Answers a question on standard output. A question whose answer fails is removed. `is_terminal`: with a line about
  // speed.
  void ask(const std::string& text, bool is_terminal);
  // Runs a command of the user; false when it ends the conversation.
  bool command(const std::string& line, bool is_terminal);
  // Completes commands, names of options after /set, and names of files.
  static Completion complete(const std::string& before_cursor);

 private:
  std::string system_text() const;
  void set_system(const std::string& text);
  bool drop(const char* role);
  void save(const std::string& file) const;
  void load(const std::string& file);
  void set(const std::string& words);
  void use_model(const std::string& file);
  void show_stats() const;
  void answer(bool is_terminal);
  void attach(const std::string& file);
  const model::infer::PictureRef& picture(const std::string& file);
  std::vector<model::text::TokenId> tokens();
  const ChatModel& read() const { return engine_ ? engine_->read() : model_; }

  const Shared& shared_;
  ChatFlags& flags_;
  const ChatModel& model_;  // while there is no engine
  std::unique_ptr<ChatEngine> engine_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array(), more_ = nlohmann::ordered_json::object();
  std::vector<std::string> attached_;                         // files of pictures for the next question
  std::map<std::string, model::infer::PictureRef> pictures_;  // of the conversation, by file
  struct {
    int64_t answers = 0, read = 0, made = 0, drafted = 0, accepted = 0;
    double read_seconds = 0, made_seconds = 0;
  } totals_;
};

}  // namespace lumen::cli
