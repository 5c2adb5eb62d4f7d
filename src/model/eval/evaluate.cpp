#include "model/eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/naming.h"
#include "base/stopwatch.h"
#include "model/eval/compare.h"
#include "model/eval/examples.h"
#include "model/eval/likelihood.h"
#include "model/eval/rows.h"
#include "model/infer/generate/generate_many.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::eval {
namespace {

using nlohmann::ordered_json;
using Told = std::function<void(const EvalProgress&)>;
using GoOn = std::function<bool()>;

struct Row {
  ordered_json fields;
  std::string where;  // file and number, for messages
};

std::vector<Row> rows_of(const std::filesystem::path& path) {
  std::vector<Row> out;
  for (ordered_json& fields : read_rows(path))
    out.push_back({std::move(fields), fmt::format("{}: row {}", path.string(), out.size() + 1)});
  if (out.empty()) throw user_error("{}: no rows", path.string());
  return out;
}

// Mean, with the sample standard error.
Figure mean_figure(std::string name, const std::vector<double>& values) {
  const double n = values.size();
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / n;
  for (const double v : values) squares += (v - mean) * (v - mean);
  Figure figure{std::move(name), mean, std::nullopt};
  if (values.size() > 1) figure.error = std::sqrt(squares / (n - 1)) / std::sqrt(n);
  return figure;
}

// The macro-averaged F1 score over all choices that were correct or picked.
double macro_f1(const std::vector<std::pair<size_t, size_t>>& right_and_picked) {
  std::set<size_t> classes;
  for (const auto& [right, picked] : right_and_picked) classes.insert({right, picked});
  double sum = 0;
  for (const size_t c : classes) {
    double both = 0, either = 0;
    for (const auto& [right, picked] : right_and_picked) {
      both += right == c && picked == c;
      either += (right == c) + (picked == c);
    }
    sum += 2 * both / either;
  }
  return sum / classes.size();
}

int64_t characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

class Evaluation {
 public:
  Evaluation(const infer::LoadedModel& loaded, const Task& task, const std::filesystem::path& folder,
             const EvalOptions& options, const Told& told, const GoOn& go_on)
      : loaded_(loaded), task_(task), options_(options), told_(told), go_on_(go_on), draws_(options.seed) {
    rows_ = rows_of(data_file(task, "data", folder, options.outside_data));
    const bool same = task.examples.empty() || task.examples == task.data;
    examples_ = same ? rows_ : rows_of(data_file(task, "examples", folder, options.outside_data));
    without_itself_ = same;
    if (options.limit > 0 && options.limit < std::ssize(rows_)) rows_.resize(options.limit);
    result_.task = task.name;
    result_.rows = rows_.size();
    result_.fewshot = options.fewshot.value_or(task.fewshot);
  }

  TaskResult run() {
    const Stopwatch watch;
    for (const Row& row : rows_) beginnings_.push_back(beginning(row));
    if (task_.kind == TaskKind::choice)
      choose();
    else
      write();
    result_.seconds = watch.seconds();
    return std::move(result_);
  }

 private:
  // The text before a row's prompt.
  std::string beginning(const Row& row) {
    std::string text;
    if (task_.description) text = naming(row.where, [&] { return task_.description->render(context_of(row.fields)); });
    for (const size_t at : drawn(row))
      text += example_of(task_, examples_[at].fields, examples_[at].where) + task_.between;
    return text;
  }

  // Indices of the few-shot examples of a row.
  std::vector<size_t> drawn(const Row& row) {
    const size_t count = result_.fewshot;
    if (count == 0) return {};
    const auto field = [&](const ordered_json& fields) { return fields.value(task_.alike, ordered_json()); };
    std::vector<size_t> from;
    for (size_t i = 0; i < examples_.size(); ++i)
      if (task_.alike.empty() || field(examples_[i].fields) == field(row.fields)) from.push_back(i);
    const auto draw = [&](size_t wanted) {
      if (from.size() < wanted)
        throw user_error("{}: {} examples are needed, but there are only {} rows to take them from", row.where, wanted,
                         from.size());
      std::vector<size_t> out = draws_.sample(from.size(), wanted);
      for (size_t& at : out) at = from[at];
      return out;
    };
    const auto leave_out_itself = [&](std::vector<size_t>& places) {
      if (without_itself_) std::erase_if(places, [&](size_t at) { return examples_[at].fields == row.fields; });
    };
    std::vector<size_t> out = task_.first_examples ? from : draw(without_itself_ ? count + 1 : count);
    leave_out_itself(out);
    if (out.size() < count) {  // the row is among the examples several times
      leave_out_itself(from);
      out = draw(count);
    }
    out.resize(count);
    return out;
  }

  void tell(int64_t done) const {
    if (told_) told_({task_.name, done, result_.rows});
    if (go_on_ && !go_on_()) throw Error(Exit::interrupted, "interrupted: no figures");
  }

  void choose() {
    Likelihood likelihood(loaded_, options_.session);
    const text::Tokenizer& tokenizer = *loaded_.model().tokenizer;
    std::map<std::string, std::vector<double>> counted;
    std::vector<std::pair<size_t, size_t>> right_and_picked;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Question q = question_of(task_, rows_[r].fields, rows_[r].where);
      std::vector<double> nats, by_characters, by_bytes;
      for (const Question::Choice& c : q.choices) {
        nats.push_back(
            likelihood.of(token_pair(tokenizer, beginnings_[r] + c.prompt, task_.separator + c.continuation)));
        by_characters.push_back(nats.back() / std::max<int64_t>(characters(c.text), 1));
        by_bytes.push_back(nats.back() / std::max<size_t>(c.text.size(), 1));
      }
      const auto best = [](const std::vector<double>& v) {
        return static_cast<size_t>(std::max_element(v.begin(), v.end()) - v.begin());
      };
      counted["acc"].push_back(best(nats) == q.right);
      counted["acc_norm"].push_back(best(by_characters) == q.right);
      counted["acc_bytes"].push_back(best(by_bytes) == q.right);
      right_and_picked.emplace_back(q.right, best(nats));
      ordered_json sample = {{"row", r},
                             {"prompt", beginnings_[r] + q.choices.front().prompt},
                             {"right", q.right},
                             {"picked", best(nats)}};
      for (size_t c = 0; c < q.choices.size(); ++c)
        sample["choices"].push_back({{"text", q.choices[c].text}, {"nats", nats[c]}});
      result_.samples.push_back(std::move(sample));
      tell(r + 1);
    }
    result_.cut = likelihood.cut();
    for (const std::string& metric : task_.metrics) {
      if (metric == "f1")
        result_.figures.push_back({"f1", macro_f1(right_and_picked), std::nullopt});
      else
        result_.figures.push_back(mean_figure(metric, counted.at(metric)));
    }
  }

  void write() {
    const text::Tokenizer& tokenizer = *loaded_.model().tokenizer;
    infer::ManyOptions many;
    many.session = options_.session;
    many.sampling.temperature = 0;
    many.generate.predict = task_.most;
    many.generate.stops = task_.until;
    many.parallel = std::min<int64_t>(options_.parallel, result_.rows);
    const int64_t room = session_options(loaded_.model(), options_.session).context - task_.most;
    if (room < 1)
      throw user_error("task '{}' generates {} tokens, which do not fit the context", task_.name, task_.most);
    std::vector<infer::ManyRequest> requests;
    std::vector<Question> questions;
    for (size_t r = 0; r < rows_.size(); ++r) {
      questions.push_back(question_of(task_, rows_[r].fields, rows_[r].where));
      text::EncodeOptions encode;
      encode.add_special = true;
      std::vector<text::TokenId> ids = tokenizer.encode(beginnings_[r] + questions.back().prompt, encode);
      if (tokenizer.adds_eos() && !ids.empty() && tokenizer.eos() && ids.back() == *tokenizer.eos()) ids.pop_back();
      if (std::ssize(ids) > room) {
        ids.erase(ids.begin(), ids.end() - room);
        ++result_.cut;
      }
      requests.push_back({std::move(ids), 0});
    }
    int64_t done = 0;
    many.session.context = 0;  // as many cache positions as all sequences may need
    const auto answers = answer_all(
        loaded_, many, requests,
        [&](size_t, const infer::ManyAnswer&) {
          if (told_) told_({task_.name, ++done, result_.rows});
        },
        [&] { return !go_on_ || go_on_(); });
    const Comparison comparison(task_);
    std::vector<std::vector<double>> counted(task_.extractions.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (answers[r].reason == infer::EndReason::interrupted) throw Error(Exit::interrupted, "interrupted: no figures");
      ordered_json sample = {{"row", r},
                             {"prompt", beginnings_[r] + questions[r].prompt},
                             {"right", questions[r].answer},
                             {"written", text::utf8_repair(answers[r].text)}};
      for (size_t e = 0; e < task_.extractions.size(); ++e) {
        const std::string answer = comparison.extract(e, text::utf8_repair(answers[r].text));
        counted[e].push_back(comparison.equal(answer, questions[r].answer));
        sample["extracted"][task_.extractions[e].name] = answer;
      }
      result_.samples.push_back(std::move(sample));
    }
    for (size_t e = 0; e < task_.extractions.size(); ++e)
      result_.figures.push_back(mean_figure("exact_match," + task_.extractions[e].name, counted[e]));
  }

  const infer::LoadedModel& loaded_;
  const Task& task_;
  const EvalOptions& options_;
  const Told& told_;
  const GoOn& go_on_;
  ExampleDraws draws_;
  std::vector<Row> rows_, examples_;
  bool without_itself_ = false;
  std::vector<std::string> beginnings_;
  TaskResult result_;
};

// Metrics over all members, weighted by rows.
TaskResult average(const std::string& name, const std::vector<TaskResult>& members) {
  TaskResult out;
  out.task = name;
  std::map<std::string, std::pair<double, double>> sums;  // value and variance, times rows
  for (const TaskResult& m : members) {
    out.rows += m.rows;
    out.seconds += m.seconds;
    out.cut += m.cut;
  }
  for (const Figure& f : members.front().figures) {
    double value = 0, variance = 0, all = out.rows;
    bool everywhere = true, errors = true;
    for (const TaskResult& m : members) {
      const auto found =
          std::find_if(m.figures.begin(), m.figures.end(), [&](const Figure& g) { return g.name == f.name; });
      everywhere = everywhere && found != m.figures.end();
      if (!everywhere) break;
      const double n = m.rows;
      value += found->value * n / all;
      errors = errors && found->error.has_value();
      if (found->error) variance += std::pow(n / all * *found->error, 2);
    }
    if (everywhere) out.figures.push_back({f.name, value, errors ? std::optional(std::sqrt(variance)) : std::nullopt});
  }
  return out;
}

}  // namespace

std::vector<std::filesystem::path> data_files_of(const TaskLibrary& library, const std::string& name,
                                                 const EvalOptions& options) {
  const Task& task = library.get(name);
  std::vector<std::filesystem::path> files;
  for (const std::string& member : task.members)
    if (library.get(member).members.empty())
      for (std::filesystem::path& file : data_files_of(library, member, options)) files.push_back(std::move(file));
  if (!task.members.empty()) return files;
  const std::filesystem::path folder = options.data.empty() ? library.folder_of(name) : options.data;
  files.push_back(data_file(task, "data", folder, options.outside_data));
  if (!task.examples.empty()) files.push_back(data_file(task, "examples", folder, options.outside_data));
  return files;
}

std::vector<TaskResult> evaluate(const infer::LoadedModel& loaded, const TaskLibrary& library, const std::string& name,
                                 const EvalOptions& options, const Told& told, const GoOn& go_on) {
  if (!loaded.model().tokenizer) throw user_error("the model has no tokenizer");
  const Task& task = library.get(name);
  if (task.members.empty()) {
    const std::filesystem::path folder = options.data.empty() ? library.folder_of(name) : options.data;
    std::vector<TaskResult> one;
    one.push_back(Evaluation(loaded, task, folder, options, told, go_on).run());
    return one;
  }
  std::vector<TaskResult> all;
  for (const std::string& member : task.members) {
    if (!library.get(member).members.empty())
      throw user_error("task '{}': its member '{}' has members itself", name, member);
    for (TaskResult& r : evaluate(loaded, library, member, options, told, go_on)) all.push_back(std::move(r));
  }
  all.push_back(average(name, all));
  return all;
}

}  // namespace lumen::model::eval
