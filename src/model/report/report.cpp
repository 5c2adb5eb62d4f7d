#include "model/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/recipe/record/record.h"
#include "model/report/chart.h"
#include "model/report/page.h"

namespace lumen::model::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostPoints = 600;  // of a curve
constexpr size_t kSparks = 24;
constexpr const char* kLoss = "loss";

std::vector<Point> values(const RunLog& run, const std::string& key) {
  std::vector<Point> out;
  for (const LoggedStep& s : run.steps) {
    const auto found = s.values.find(key);
    if (key == kLoss)
      out.push_back({static_cast<double>(s.step), s.loss});
    else if (found != s.values.end())
      out.push_back({static_cast<double>(s.step), found->second});
  }
  return out;
}

std::set<std::string> figure_names(std::span<const RunLog> runs) {
  std::set<std::string> names;
  for (const RunLog& run : runs)
    for (const LoggedEvaluation& e : run.evaluations)
      for (const auto& [name, value] : e.figures) names.insert(name);
  return names;
}

std::optional<double> last_figure(const RunLog& run, const std::string& name) {
  std::optional<double> out;
  for (const LoggedEvaluation& e : run.evaluations)
    if (const auto found = e.figures.find(name); found != e.figures.end()) out = found->second;
  return out;
}

std::optional<double> last(const RunLog& run, const std::string& key) {
  const std::vector<Point> all = values(run, key);
  return all.empty() ? std::nullopt : std::optional(all.back().y);
}

std::optional<double> most(const RunLog& run, const std::string& key) {
  std::optional<double> out;
  for (const Point& p : values(run, key)) out = std::max(out.value_or(p.y), p.y);
  return out;
}

using Recipes = std::vector<std::optional<recipe::Recipe>>;

// A recipe in a run's log: its own, or the defaults of the program that wrote it. nullopt where there is none, and with
// a warning where it cannot be read.
std::optional<recipe::Recipe> logged_recipe(const RunLog& run, const char* key) {
  const std::string text = run.text(key);
  if (text.empty()) return std::nullopt;
  try {
    return recipe::parse_recipe(text, run.path.string());
  } catch (const Error& e) {
    warn(fmt::format("{}: its {} cannot be read: {}", run.path.string(), key, e.what()));
    return std::nullopt;
  }
}

Recipes recipes_of(std::span<const RunLog> runs) {
  Recipes out;
  for (const RunLog& run : runs) out.push_back(logged_recipe(run, "recipe"));
  return out;
}

std::vector<RecipeDifference> differences_of(const Recipes& recipes) {
  const auto first = std::find_if(recipes.begin(), recipes.end(), [](const auto& r) { return r.has_value(); });
  std::map<std::string, std::vector<std::string>> found;
  for (size_t i = 0; first != recipes.end() && i < recipes.size(); ++i) {
    if (!recipes[i]) continue;
    for (const recipe::RecipeChange& c : recipe_changes(**first, *recipes[i])) {
      auto& values = found[c.key];
      if (values.empty())
        for (const auto& r : recipes) values.push_back(r ? c.was : "?");
      values[i] = c.now;
    }
  }
  std::vector<RecipeDifference> out;
  for (auto& [key, values] : found) out.push_back({key, std::move(values)});
  return out;
}

ordered_json summary_of(const RunLog& run) {
  ordered_json out = ordered_json::object();
  const auto put = [&](const char* key, const std::optional<double>& x) {
    if (x) out[key] = *x;
  };
  if (!run.steps.empty()) out["step"] = run.steps.back().step;
  put("train_loss", run.train_loss());
  if (const LoggedEvaluation* e = run.last_validation()) {
    put("validation_loss", e->validation_loss);
    put("validation_rows", e->rows);
  }
  if (const LoggedEvaluation* e = run.best_validation()) {
    put("best_loss", e->validation_loss);
    out["best_step"] = e->step;
    put("best_rows", e->rows);
  }
  put("tokens", last(run, "tokens"));
  put("epoch", last(run, "epoch"));
  put("speed", run.mean_over_time("tokens_per_second"));
  put("mfu", run.mean_over_time("mfu"));
  put("memory", most(run, "memory"));
  double seconds = 0;
  for (const Point& p : values(run, "seconds")) seconds += p.y;
  if (seconds > 0) out["seconds"] = seconds;
  return out;
}

ordered_json evaluation_json(const LoggedEvaluation& e) {
  ordered_json out = {{"step", e.step}, {"figures", ordered_json::object()}, {"samples", ordered_json::array()}};
  if (e.validation_loss) out["validation_loss"] = *e.validation_loss;
  if (e.rows) out["rows"] = *e.rows;
  for (const auto& [name, value] : e.figures) out["figures"][name] = value;
  for (const LoggedSample& s : e.samples) out["samples"].push_back({{"prompt", s.prompt}, {"text", s.text}});
  return out;
}

ordered_json run_json(const RunLog& run, const std::optional<recipe::Recipe>& recipe) {
  ordered_json out = {{"name", run.name},
                      {"path", run.path.string()},
                      {"starts", run.starts},
                      {"skipped", run.skipped},
                      {"first_skipped", run.first_skipped},
                      {"about", run.run},
                      {"outputs", run.outputs},
                      {"summary", summary_of(run)},
                      {"curves", ordered_json::object()},
                      {"evaluations", ordered_json::array()},
                      {"events", ordered_json::array()},
                      {"recipe_changes", ordered_json::array()}};
  std::set<std::string> keys;
  for (const LoggedStep& s : run.steps)
    for (const auto& [key, value] : s.values) keys.insert(key);
  keys.insert(kLoss);
  for (const std::string& key : keys) out["curves"][key] = condensed(values(run, key), kMostPoints);
  for (const LoggedEvaluation& e : run.evaluations) out["evaluations"].push_back(evaluation_json(e));
  for (const LoggedEvent& e : run.events)
    out["events"].push_back({{"step", e.step}, {"kind", e.kind}, {"text", e.text}});
  if (recipe)
    for (const recipe::RecipeChange& c :
         recipe_changes(logged_recipe(run, "defaults").value_or(recipe::Recipe()), *recipe))
      out["recipe_changes"].push_back({{"key", c.key}, {"default", c.was}, {"value", c.now}});
  return out;
}

std::string number_text(std::optional<double> value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

Table summary_table(std::span<const RunLog> runs) {
  Table out{{"run", "loss", "steps", "training", "validation", "best", "tokens/s", "MFU", "memory"}, {}, 2};
  for (const RunLog& run : runs) {
    const LoggedEvaluation *now = run.last_validation(), *best = run.best_validation();
    const auto speed = run.mean_over_time("tokens_per_second"), mfu = run.mean_over_time("mfu"),
               memory = most(run, "memory");
    out.rows.push_back({run.name, sparkline(values(run, kLoss), kSparks),
                        run.steps.empty() ? "-" : fmt::format("{}", run.steps.back().step),
                        number_text(run.train_loss()), number_text(now ? now->validation_loss : std::nullopt),
                        number_text(best ? best->validation_loss : std::nullopt),
                        speed ? fmt::format("{:.0f}", *speed) : "-", mfu ? fmt::format("{:.1f} %", 100 * *mfu) : "-",
                        memory ? size_text(*memory) : "-"});
  }
  return out;
}

Table difference_table(std::span<const RunLog> runs, const char* title) {
  Table out{{title}, {}, runs.size() + 1};
  for (const RunLog& run : runs) out.head.push_back(run.name);
  for (const RecipeDifference& d : recipe_differences(runs)) {
    out.rows.push_back({d.key});
    out.rows.back().insert(out.rows.back().end(), d.values.begin(), d.values.end());
  }
  return out;
}

}  // namespace

ordered_json report_json(std::span<const RunLog> runs) {
  ordered_json out = {{"lumen_report", 1}, {"title", ""}, {"subtitle", ""}, {"runs", ordered_json::array()}};
  const Recipes recipes = recipes_of(runs);
  for (size_t i = 0; i < runs.size(); ++i) out["runs"].push_back(run_json(runs[i], recipes[i]));
  if (runs.size() == 1) {
    out["title"] = runs[0].name;
    const std::string model = runs[0].text("model"), device = runs[0].text("device");
    out["subtitle"] = model + (model.empty() || device.empty() ? "" : " · ") + device;
    return out;
  }
  out["title"] = fmt::format("{} runs", runs.size());
  for (const RecipeDifference& d : differences_of(recipes))
    out["differences"].push_back({{"key", d.key}, {"values", d.values}});
  return out;
}

std::string html_report(std::span<const RunLog> runs) {
  return html_page(report_json(runs));
}

std::string text_report(std::span<const RunLog> runs) {
  std::string out = text_table(summary_table(runs));
  if (const std::set<std::string> names = figure_names(runs); !names.empty()) {
    Table figures{{"run"}, {}, 1};
    figures.head.insert(figures.head.end(), names.begin(), names.end());
    for (const RunLog& run : runs) {
      figures.rows.push_back({run.name});
      for (const std::string& name : names) figures.rows.back().push_back(number_text(last_figure(run, name)));
    }
    out += "\n" + text_table(figures);
  }
  if (const Table differences = difference_table(runs, "what differs"); !differences.rows.empty())
    out += "\n" + text_table(differences);
  for (const RunLog& run : runs) {
    for (const LoggedEvent& e : run.events)
      out += fmt::format("{}: step {}: {}: {}\n", run.name, e.step, e.kind, e.text);
    if (run.skipped > 0)
      out += fmt::format("{}: {} lines left out; {}\n", run.path.string(), run.skipped, run.first_skipped);
  }
  return out;
}

std::vector<RecipeDifference> recipe_differences(std::span<const RunLog> runs) {
  return differences_of(recipes_of(runs));
}

}  // namespace lumen::model::report
