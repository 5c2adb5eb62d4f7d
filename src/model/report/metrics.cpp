#include "model/report/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"

namespace lumen::model::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kLargestFile = uint64_t{2} << 30;
constexpr int64_t kLastStep = int64_t{1} << 53;
constexpr size_t kRecent = 50;  // steps averaged for "the train loss"
constexpr size_t kMostSamples = 64;

std::optional<int64_t> step_of(const json& line) {
  const auto found = line.find("step");
  if (found == line.end() || !found->is_number_integer()) return std::nullopt;
  const auto step = found->get<int64_t>();
  if (step < 0 || step > kLastStep) return std::nullopt;
  return step;
}

std::optional<double> finite(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

LoggedEvaluation evaluation_of(const json& line, int64_t step) {
  LoggedEvaluation e;
  e.step = step;
  for (const auto& [key, value] : line.items()) {
    if (key == "step") continue;
    if (key == "tasks") {
      if (!value.is_object()) continue;
      for (const auto& [task, figures] : value.items()) {
        if (!figures.is_object()) continue;
        for (const auto& [name, number] : figures.items())
          if (const auto x = finite(number)) e.figures[task + "." + name] = *x;
      }
    } else if (key == "samples") {
      if (!value.is_array()) continue;
      for (const json& sample : value)
        if (sample.is_object() && e.samples.size() < kMostSamples)
          e.samples.push_back({text_of(sample, "prompt"), text_of(sample, "text")});
    } else if (const auto x = finite(value)) {
      if (key == "validation_loss")
        e.validation_loss = *x;
      else if (key == "validation_rows")
        e.rows = *x;
      else
        e.figures[key] = *x;
    }
  }
  return e;
}

// Whether both lines are of one evaluation: of one step, and not of losses on different rows.
bool are_alike(const LoggedEvaluation& a, const LoggedEvaluation& b) {
  return a.step == b.step && (!a.validation_loss || !b.validation_loss || a.rows == b.rows);
}

// Sorts by step, one for each step and number of rows: later lines replace earlier ones.
void join_evaluations(std::vector<LoggedEvaluation>& all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const LoggedEvaluation& a, const LoggedEvaluation& b) { return a.step < b.step; });
  std::vector<LoggedEvaluation> joined;
  for (LoggedEvaluation& e : all) {
    const auto found = std::find_if(joined.rbegin(), joined.rend(),
                                    [&](const LoggedEvaluation& to) { return to.step < e.step || are_alike(to, e); });
    if (found == joined.rend() || found->step < e.step) {
      joined.push_back(std::move(e));
      continue;
    }
    if (e.validation_loss) found->validation_loss = e.validation_loss;
    if (e.rows) found->rows = e.rows;
    for (const auto& [name, value] : e.figures) found->figures[name] = value;
    if (!e.samples.empty()) found->samples = std::move(e.samples);
  }
  all = std::move(joined);
}

// False, with the reason, when the line does not belong to a log.
bool take(const json& line, RunLog& log, std::string& why) {
  if (!line.is_object()) {
    why = "no JSON object";
    return false;
  }
  const auto step = step_of(line);
  if (!step) {
    why = "\"step\" is no whole number";
    return false;
  }
  if (const auto run = line.find("run"); run != line.end() && run->is_object()) {
    log.run = *run;
    ++log.starts;
    return true;
  }
  if (const auto outputs = line.find("outputs"); outputs != line.end() && outputs->is_object()) {
    log.outputs = *outputs;
    return true;
  }
  if (line.contains("event")) {
    log.events.push_back({*step, text_of(line, "event"), text_of(line, "text")});
    return true;
  }
  if (const auto loss = line.find("loss"); loss != line.end()) {
    const auto number = finite(*loss);
    if (!number) {
      why = "\"loss\" is no finite number";
      return false;
    }
    if (!log.steps.empty() && log.steps.back().step >= *step) {
      why = "its step is not larger than the one before it";
      return false;
    }
    LoggedStep s{*step, *number, {}};
    for (const auto& [key, value] : line.items()) {
      if (key == "step" || key == "loss") continue;
      if (const auto x = finite(value)) s.values[key] = *x;
    }
    log.steps.push_back(std::move(s));
    return true;
  }
  if (line.contains("validation_loss") || line.contains("tasks") || line.contains("samples")) {
    log.evaluations.push_back(evaluation_of(line, *step));
    return true;
  }
  why = "neither a step nor an evaluation";
  return false;
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& out, int64_t done) {
  if (out.empty()) return;
  fs::create_directories(out);
  path_ = out / kMetricsName;
  open(done, done == 0);
}

void MetricsFile::open(int64_t done, bool fresh) {
  file_.close();
  std::string kept;
  if (!fresh) {
    std::ifstream old(path_);
    for (std::string line; std::getline(old, line);) {
      const auto parsed = json::parse(line, nullptr, false);
      if (!parsed.is_object()) continue;
      const auto step = step_of(parsed);
      if (step && *step <= done) kept += line + "\n";
    }
  }
  write_file_atomic(path_, kept);
  file_.open(path_, std::ios::app);
  if (!file_) throw user_error("cannot write {}", path_.string());
}

void MetricsFile::write(const json& line) {
  if (path_.empty()) return;
  // A model's output may be invalid UTF-8.
  file_ << line.dump(-1, ' ', false, json::error_handler_t::replace) << "\n" << std::flush;
  if (!file_) throw user_error("cannot write {}: is the disk full? The last checkpoint is whole", path_.string());
}

void MetricsFile::go_back(int64_t done) {
  if (!path_.empty()) open(done, false);
}

void MetricsFile::append(const fs::path& out, const json& line) {
  MetricsFile log;
  log.path_ = out / kMetricsName;
  std::error_code error;
  if (!fs::exists(log.path_, error)) return;
  log.file_.open(log.path_, std::ios::app);
  log.write(line);
}

std::optional<double> RunLog::train_loss() const {
  if (steps.empty()) return std::nullopt;
  const size_t count = std::min(kRecent, steps.size());
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i].loss;
  return sum / count;
}

const LoggedEvaluation* RunLog::last_validation() const {
  for (size_t i = evaluations.size(); i-- > 0;)
    if (evaluations[i].validation_loss) return &evaluations[i];
  return nullptr;
}

const LoggedEvaluation* RunLog::best_validation() const {
  const LoggedEvaluation *first = nullptr, *best = nullptr;
  for (const LoggedEvaluation& e : evaluations) {
    if (!e.validation_loss) continue;
    if (!first) first = &e;
    if (e.rows == first->rows && (!best || *e.validation_loss < *best->validation_loss)) best = &e;
  }
  return best;
}

std::optional<double> RunLog::mean_over_time(const std::string& key) const {
  double sum = 0, time = 0;
  for (const LoggedStep& s : steps) {
    const auto value = s.values.find(key), seconds = s.values.find("seconds");
    if (value == s.values.end() || seconds == s.values.end()) continue;
    sum += value->second * seconds->second;
    time += seconds->second;
  }
  return time > 0 ? std::optional(sum / time) : std::nullopt;
}

std::string RunLog::text(const char* key) const {
  return text_of(run, key);
}

std::optional<double> RunLog::number(const char* key) const {
  const auto found = run.find(key);
  return found == run.end() ? std::nullopt : finite(*found);
}

RunLog read_run_log(const fs::path& given) {
  std::error_code error;
  RunLog log;
  log.path = fs::is_directory(given, error) ? given / kMetricsName : given;
  if (!fs::exists(log.path, error)) {
    throw Error(Exit::user, fmt::format("'{}' is no training run: there is no {}", given.string(), kMetricsName),
                "name the folder that `lumen train --out` wrote");
  }
  const fs::path folder = fs::absolute(log.path).lexically_normal().parent_path();
  log.name = folder.filename().string();
  const std::string content = read_file(log.path, kLargestFile);
  int64_t number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line(content.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string why;
    bool taken = false;
    try {
      taken = take(parse_json(line, fmt::format("{}:{}", log.path.string(), number), 16), log, why);
    } catch (const Error& e) {
      why = e.what();
    }
    if (taken) continue;
    if (++log.skipped == 1) log.first_skipped = fmt::format("line {}: {}", number, why);
  }
  join_evaluations(log.evaluations);
  if (log.steps.empty() && log.evaluations.empty() && log.starts == 0) {
    throw Error(Exit::user, fmt::format("{} has no line of a training run", log.path.string()),
                log.skipped > 0 ? fmt::format("{} lines are something else; {}", log.skipped, log.first_skipped)
                                : "the run has not made its first step");
  }
  return log;
}

}  // namespace lumen::model::report
