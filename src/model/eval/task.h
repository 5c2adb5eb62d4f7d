// Tasks that measure a model: questions with choices, or answers to be generated and compared. A task is a text
// (tasks/*.toml): where its rows lie, what a prompt is made of, what is right, what is counted. Prompts are Jinja
// templates over the fields of a row; {{row["a name"]}} reaches fields that are no names. Proved by
// tests/model/eval/eval_task_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/template/chat_template.h"

namespace lumen::model {

enum class TaskKind { choice, generate };

// How an answer is taken out of what was written.
struct Extraction {
  std::string name;     // of the figure: exact_match,NAME
  std::string pattern;  // regular expression; empty: the text as it is
  int64_t select = 0;   // which of its matches; -1: the last
};

struct Task {
  std::string name, doc;
  TaskKind kind = TaskKind::choice;
  std::string data, examples;               // files; without examples they are other rows of the data
  std::optional<ChatTemplate> description;  // in front of everything
  std::string alike;                        // a field in which examples are like the row; empty: none
  std::string separator = " ";              // between a prompt and what follows it
  std::string between = "\n\n";             // behind each example
  int64_t fewshot = 0;
  bool first_examples = false;  // the first rows are the examples, instead of drawn ones
  ChatTemplate prompt;          // may use {{choice}}
  ChatTemplate continuation;    // of a choice
  ChatTemplate answer;          // the right choice's number from 0, or the answer to be generated
  std::string choice_list;      // a field with a list of choices, or
  std::vector<ChatTemplate> choices;
  std::vector<std::string> metrics;
  // Strings that end a generated answer.
  std::vector<std::string> until;
  int64_t most = 256;  // tokens
  std::vector<Extraction> extractions;
  std::vector<std::string> ignore;  // regular expressions whose matches do not count
  bool ignore_case = false, ignore_punctuation = false;
  // Further tasks whose figures are averaged under this name; then nothing else is set.
  std::vector<std::string> members;
  // Where keys stand, as "mine.toml:3:8", for messages about what is found later.
  std::map<std::string, std::string> places;

  // Error with file and line for what is no task.
  static Task parse(const std::string& text, const std::string& file);
};

// A row made ready: what the model is asked, and what is right.
struct Question {
  struct Choice {
    std::string prompt, continuation, text;
  };
  std::vector<Choice> choices;  // of TaskKind::choice
  size_t right = 0;
  std::string prompt, answer;  // of TaskKind::generate
};

// Where the file lies that a task names. A task may come from somebody else: Error that names task, key and file when
// the file, or what a link leads to, lies outside of the folder, unless that is allowed.
std::filesystem::path data_file(const Task& task, const std::string& key, const std::filesystem::path& folder,
                                bool allow_outside);

// The fields of a row as templates see them.
nlohmann::ordered_json context_of(const nlohmann::ordered_json& row);
Question question_of(const Task& task, const nlohmann::ordered_json& row, const std::string& where);
// The question with its answer, as an example stands in front of others.
std::string example_of(const Task& task, const nlohmann::ordered_json& row, const std::string& where);

// The tasks that come with the program, and those of a user's files.
class TaskLibrary {
 public:
  TaskLibrary();
  void add_file(const std::filesystem::path& file);
  const Task& get(const std::string& name) const;  // Error that lists what there is
  // The folder of a user's file, whose data lie beside it; empty for those that come with the program.
  std::filesystem::path folder_of(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  struct Entry {
    Task task;
    std::filesystem::path folder;
  };
  std::vector<Entry> tasks_;
};

}  // namespace lumen::model
