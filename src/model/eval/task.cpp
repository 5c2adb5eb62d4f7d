#include "model/eval/task.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/naming.h"
#include "base/place.h"
#include "base/structured/toml.h"

namespace lumen::model::eval {
namespace {

using nlohmann::ordered_json;

constexpr const char* kChoiceMetrics[] = {"acc", "acc_norm", "acc_bytes", "f1"};

templates::ChatTemplate template_at(const Toml& toml, const std::string& key, const std::string& text) {
  try {
    return templates::ChatTemplate::parse(text, key);
  } catch (const Error& e) {
    throw error_at(toml.place(key), e.what());
  }
}

// Renders a template with a row; errors name the task's key of the template.
std::string rendered(const Task& task, const char* key, const templates::ChatTemplate& text,
                     const ordered_json& context) {
  try {
    return text.render(context);
  } catch (const Error& e) {
    const auto place = task.places.find(key);
    throw Error(e.code(),
                fmt::format("{}: {}: {}", place == task.places.end() ? task.name : place->second, key, e.what()),
                e.hint());
  }
}

size_t right_choice(const std::string& answer, const std::vector<Question::Choice>& choices, const std::string& where) {
  const bool digits = !answer.empty() && answer.size() < 10 &&
                      std::all_of(answer.begin(), answer.end(), [](char c) { return c >= '0' && c <= '9'; });
  for (size_t i = 0; i < choices.size(); ++i)
    if (!digits && choices[i].text == answer) return i;
  const size_t number = digits ? std::stoul(answer) : choices.size();
  if (number < choices.size()) return number;
  throw user_error("{}: the right answer is '{}', which is neither the number nor the text of one of its {} choices",
                   where, answer, choices.size());
}

std::vector<std::string> choices_of(const Task& task, const ordered_json& row, const ordered_json& context,
                                    const std::string& where) {
  std::vector<std::string> choices;
  for (const templates::ChatTemplate& one : task.choices) choices.push_back(rendered(task, "choices", one, context));
  if (task.choice_list.empty()) return choices;
  const auto list = row.find(task.choice_list);
  if (list == row.end() || !list->is_array()) throw user_error("{}: no list '{}'", where, task.choice_list);
  for (const ordered_json& one : *list) {
    if (!one.is_string()) throw user_error("{}: '{}' has an element that is not a string", where, task.choice_list);
    choices.push_back(one.get<std::string>());
  }
  return choices;
}

void read_choices(const Toml& toml, Task& task) {
  if (toml.kind("choices") == Toml::Kind::text) {
    task.choice_list = toml.text("choices");
  } else {
    for (const std::string& text : toml.texts("choices")) task.choices.push_back(template_at(toml, "choices", text));
    if (task.choices.size() < 2)
      throw error_at(toml.place("choices"), "a question needs at least two choices",
                     "a list of strings, or the name of a field that holds one");
  }
  task.continuation = template_at(toml, "continuation", toml.text("continuation", "{{choice}}"));
  for (const std::string& metric : task.metrics) {
    if (std::find(std::begin(kChoiceMetrics), std::end(kChoiceMetrics), metric) == std::end(kChoiceMetrics))
      throw error_at(toml.place("metrics"), fmt::format("'{}' is not a metric of choices", metric),
                     fmt::format("there are {}", fmt::join(kChoiceMetrics, ", ")));
  }
  if (task.metrics.empty()) task.metrics = {"acc"};
}

void read_generation(const Toml& toml, Task& task) {
  task.until = toml.texts("until");
  task.most = toml.integer("most", 256);
  if (task.most < 1 || task.most > 65536) throw error_at(toml.place("most"), "most is 1 to 65536 tokens");
  for (const Toml& one : toml.tables("extract"))
    task.extractions.push_back({one.text("name"), one.text("pattern", ""), one.integer("select", 0)});
  if (task.extractions.empty()) task.extractions.push_back({"none", "", 0});
  task.ignore = toml.texts("ignore");
  task.ignore_case = toml.boolean("ignore_case", false);
  task.ignore_punctuation = toml.boolean("ignore_punctuation", false);
  if (!task.metrics.empty() && task.metrics != std::vector<std::string>{"exact_match"})
    throw error_at(toml.place("metrics"), "generated answers are compared by exact_match alone");
  task.metrics = {"exact_match"};
}

}  // namespace

Task Task::parse(const std::string& text, const std::string& file) {
  const Toml toml = Toml::parse(text, file, size_t{1} << 20);
  Task task;
  task.name = toml.text("name");
  task.doc = toml.text("doc", "");
  task.members = toml.texts("members");
  if (task.members.empty()) {
    const std::string kind = toml.text("kind");
    if (kind != "choice" && kind != "generate")
      throw error_at(toml.place("kind"), fmt::format("unknown kind '{}'", kind), "choice or generate");
    task.kind = kind == "choice" ? TaskKind::choice : TaskKind::generate;
    task.data = toml.text("data");
    task.examples = toml.text("examples", "");
    if (toml.has("description")) task.description = template_at(toml, "description", toml.text("description"));
    task.alike = toml.text("alike", "");
    task.separator = toml.text("separator", " ");
    task.between = toml.text("between", "\n\n");
    task.fewshot = toml.integer("fewshot", 0);
    if (task.fewshot < 0 || task.fewshot > 1000) throw error_at(toml.place("fewshot"), "fewshot is 0 to 1000 examples");
    task.first_examples = toml.boolean("first_examples", false);
    task.metrics = toml.texts("metrics");
    task.prompt = template_at(toml, "prompt", toml.text("prompt"));
    task.answer = template_at(toml, "answer", toml.text("answer"));
    if (task.kind == TaskKind::choice)
      read_choices(toml, task);
    else
      read_generation(toml, task);
  }
  toml.refuse_unknown();
  for (const std::string& key : toml.keys()) {
    const LineColumn at = line_column(toml.place(key));
    task.places[key] = fmt::format("{}:{}:{}", file, at.line, at.column);
  }
  return task;
}

std::filesystem::path data_file(const Task& task, const std::string& key, const std::filesystem::path& folder,
                                bool allow_outside) {
  namespace fs = std::filesystem;
  const std::string& name = key == "data" ? task.data : task.examples;
  const fs::path file = folder / name;
  if (allow_outside) return file;
  std::error_code failure;
  const fs::path home = fs::weakly_canonical(folder, failure), place = fs::weakly_canonical(file, failure);
  if (std::mismatch(home.begin(), home.end(), place.begin(), place.end()).first == home.end()) return file;
  const auto at = task.places.find(key);
  throw Error(Exit::user,
              fmt::format("{}: {}: '{}' is '{}', which is outside of the folder '{}'",
                          at == task.places.end() ? task.name : at->second, key, name, place.string(), folder.string()),
              "put the file there, or add --allow-outside-data if you trust the task");
}

ordered_json context_of(const ordered_json& row) {
  ordered_json context = row;
  context["row"] = row;
  return context;
}

Question question_of(const Task& task, const ordered_json& row, const std::string& where) {
  return naming(where, [&] {
    Question question;
    ordered_json context = context_of(row);
    if (task.kind == TaskKind::generate) {
      question.prompt = rendered(task, "prompt", task.prompt, context);
      question.answer = rendered(task, "answer", task.answer, context);
      return question;
    }
    const std::vector<std::string> choices = choices_of(task, row, context, where);
    if (choices.size() < 2) throw user_error("{}: {} choices", where, choices.size());
    for (const std::string& text : choices) {
      context["choice"] = text;
      question.choices.push_back({rendered(task, "prompt", task.prompt, context),
                                  rendered(task, "continuation", task.continuation, context), text});
    }
    context.erase("choice");
    question.right = right_choice(rendered(task, "answer", task.answer, context), question.choices, where);
    return question;
  });
}

std::string example_of(const Task& task, const ordered_json& row, const std::string& where) {
  const Question q = question_of(task, row, where);
  if (task.kind == TaskKind::generate) return q.prompt + task.separator + q.answer;
  const Question::Choice& right = q.choices[q.right];
  return right.prompt + task.separator + right.continuation;
}

TaskLibrary::TaskLibrary() {
  for (const embedded::File& file : embedded::models())
    if (file.path.starts_with("tasks/"))
      tasks_.push_back({Task::parse(std::string(file.text), std::string(file.path)), {}});
}

void TaskLibrary::add_file(const std::filesystem::path& file) {
  Task task = Task::parse(read_file(file, uint64_t{1} << 20), file.string());
  for (const Entry& entry : tasks_)
    if (entry.task.name == task.name) throw user_error("{}: there is a task '{}' already", file.string(), task.name);
  tasks_.push_back({std::move(task), file.parent_path().empty() ? "." : file.parent_path()});
}

const Task& TaskLibrary::get(const std::string& name) const {
  for (const Entry& entry : tasks_)
    if (entry.task.name == name) return entry.task;
  throw Error(Exit::usage, fmt::format("there is no task '{}'", name),
              fmt::format("there are {}; --task-file adds one of your own", fmt::join(names(), ", ")));
}

std::filesystem::path TaskLibrary::folder_of(const std::string& name) const {
  for (const Entry& entry : tasks_)
    if (entry.task.name == name) return entry.folder;
  return {};
}

std::vector<std::string> TaskLibrary::names() const {
  std::vector<std::string> out;
  for (const Entry& entry : tasks_) out.push_back(entry.task.name);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lumen::model::eval
