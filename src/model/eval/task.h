// Evaluation tasks: multiple-choice questions, or answers that are generated and compared. A task is a TOML file
// (tasks/*.toml) that defines its data files, prompts, correct answers, and metrics. Prompts are Jinja templates over
// the fields of a row; use {{row["a name"]}} for fields that are not identifiers. Proved by
// tests/model/eval/eval_task_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/templates/chat_template.h"

namespace lumen::model::eval {

enum class TaskKind { choice, generate };

// Extracts an answer from an output.
struct Extraction {
  std::string name;     // suffix of the metric: exact_match,NAME
  std::string pattern;  // regular expression; empty: the whole text
  int64_t select = 0;   // index of the match to use; -1: the last
};

struct Task {
  std::string name, doc;
  TaskKind kind = TaskKind::choice;
  std::string data, examples;                          // files; without `examples`, other rows of the data are used
  std::optional<templates::ChatTemplate> description;  // before everything else
  std::string alike;                                   // a field whose value examples share with the row; empty: none
  std::string separator = " ";                         // between a prompt and its continuation
  std::string between = "\n\n";                        // after each example
  int64_t fewshot = 0;
  bool first_examples = false;           // uses the first rows as examples instead of drawing them
  templates::ChatTemplate prompt;        // may use {{choice}}
  templates::ChatTemplate continuation;  // for one choice
  templates::ChatTemplate answer;        // the correct choice's index from 0, or the expected answer
  std::string choice_list;               // a field with a list of choices, or
  std::vector<templates::ChatTemplate> choices;
  std::vector<std::string> metrics;
  // Stop strings of a generated answer.
  std::vector<std::string> until;
  int64_t most = 256;  // tokens to generate
  std::vector<Extraction> extractions;
  std::vector<std::string> ignore;  // regular expressions whose matches are ignored in comparisons
  bool ignore_case = false, ignore_punctuation = false;
  // Tasks whose metrics are averaged under this name; nothing else is set then.
  std::vector<std::string> members;
  // Positions of keys, as "mine.toml:3:8", for later messages.
  std::map<std::string, std::string> places;

  // Error with file and line for invalid tasks.
  static Task parse(const std::string& text, const std::string& file);
};

// A row converted to a prompt and its correct answer.
struct Question {
  struct Choice {
    std::string prompt, continuation, text;
  };
  std::vector<Choice> choices;  // for TaskKind::choice
  size_t right = 0;
  std::string prompt, answer;  // for TaskKind::generate
};

// The path of a data file of a task. Tasks may come from untrusted sources: Error that names task, key and file if the
// file, or the target of a link, is outside of the folder, unless `allow_outside` is set.
std::filesystem::path data_file(const Task& task, const std::string& key, const std::filesystem::path& folder,
                                bool allow_outside);

// The variables of a row for templates.
nlohmann::ordered_json context_of(const nlohmann::ordered_json& row);
Question question_of(const Task& task, const nlohmann::ordered_json& row, const std::string& where);
// The question with its answer, as a few-shot example.
std::string example_of(const Task& task, const nlohmann::ordered_json& row, const std::string& where);

// The built-in tasks, and those of a user's files.
class TaskLibrary {
 public:
  TaskLibrary();
  void add_file(const std::filesystem::path& file);
  const Task& get(const std::string& name) const;  // Error that lists all names
  // The folder of a user's file, which also has its data files; empty for built-in tasks.
  std::filesystem::path folder_of(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  struct Entry {
    Task task;
    std::filesystem::path folder;
  };
  std::vector<Entry> tasks_;
};

}  // namespace lumen::model::eval
