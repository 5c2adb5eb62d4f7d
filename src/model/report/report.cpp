#include "model/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/recipe/record/record.h"
#include "model/report/chart.h"
#include "model/report/page.h"

namespace lumen::model {
namespace {

using nlohmann::json;

constexpr size_t kMostRows = 500;        // of a table
constexpr size_t kMostCurves = 40;       // in addition to the usual ones
constexpr size_t kMostSampled = 40;      // evaluations whose samples are shown
constexpr double kSmoothing = 1.0 / 40;  // share of a curve's points

std::string number_text(std::optional<double> value, const char* none = "-") {
  return value ? fmt::format("{:.4f}", *value) : none;
}

std::vector<Point> losses(const RunLog& run) {
  std::vector<Point> out;
  for (const LoggedStep& s : run.steps) out.push_back({static_cast<double>(s.step), s.loss});
  return out;
}

std::vector<Point> values(const RunLog& run, const std::string& key, double scale = 1) {
  std::vector<Point> out;
  for (const LoggedStep& s : run.steps)
    if (const auto found = s.values.find(key); found != s.values.end())
      out.push_back({static_cast<double>(s.step), scale * found->second});
  return out;
}

std::vector<Point> validation(const RunLog& run) {
  std::vector<Point> out;
  for (const LoggedEvaluation& e : run.evaluations)
    if (e.validation_loss) out.push_back({static_cast<double>(e.step), *e.validation_loss});
  return out;
}

std::vector<Point> figure(const RunLog& run, const std::string& name) {
  std::vector<Point> out;
  for (const LoggedEvaluation& e : run.evaluations)
    if (const auto found = e.figures.find(name); found != e.figures.end())
      out.push_back({static_cast<double>(e.step), found->second});
  return out;
}

std::set<std::string> figure_names(std::span<const RunLog> runs) {
  std::set<std::string> names;
  for (const RunLog& run : runs)
    for (const LoggedEvaluation& e : run.evaluations)
      for (const auto& [name, value] : e.figures) names.insert(name);
  return names;
}

std::optional<double> last(const std::vector<Point>& points) {
  return points.empty() ? std::nullopt : std::optional(points.back().y);
}

std::optional<double> most(const std::vector<Point>& points) {
  std::optional<double> out;
  for (const Point& p : points)
    if (!out || p.y > *out) out = p.y;
  return out;
}

std::optional<double> median(const std::vector<Point>& points) {
  if (points.empty()) return std::nullopt;
  std::vector<double> ys;
  for (const Point& p : points) ys.push_back(p.y);
  const auto middle = ys.begin() + ys.size() / 2;
  std::nth_element(ys.begin(), middle, ys.end());
  return *middle;
}

// A faint curve of single steps, and over it a smoothed one where there are many.
void add_curve(Chart& chart, const std::string& name, std::vector<Point> points, int color, bool noisy) {
  if (noisy && points.size() > 60) {
    std::vector<Point> smooth = smoothed(points, points.size() * kSmoothing);
    chart.series.push_back({name, std::move(points), color, true});
    chart.series.push_back({name, std::move(smooth), color});
  } else {
    chart.series.push_back({name, std::move(points), color});
  }
}

// A chart drawn for every run.
struct Curve {
  const char* title;
  const char* unit;
  const char* key;
  double scale;
  bool noisy, from_zero;
};
constexpr Curve kCurves[] = {
    {"Gradient norm", "before clipping", "norm", 1, true, false},
    {"Learning rate", "", "lr", 1, false, true},
    {"Speed", "tokens a second", "tokens_per_second", 1, true, true},
    {"MFU", "% of the measured ceiling", "mfu", 100, true, true},
    {"Memory", "MiB in use", "memory", 1.0 / (1 << 20), false, true},
};

// Other values of steps: metrics of the recipe's objective.
std::set<std::string> objective_metrics(std::span<const RunLog> runs) {
  std::set<std::string> names;
  for (const RunLog& run : runs)
    for (const LoggedStep& s : run.steps)
      for (const auto& [name, value] : s.values)
        if (names.size() < kMostCurves) names.insert(name);
  for (const Curve& c : kCurves) names.erase(c.key);
  for (const char* known : {"seconds", "elapsed", "tokens", "epoch"}) names.erase(known);
  return names;
}

std::string charts(std::span<const RunLog> runs) {
  const bool one = runs.size() == 1;
  std::string out = "<div class=\"charts\">\n";
  const auto put = [&](Chart& chart, bool may_be_logarithmic) {
    const bool any =
        std::any_of(chart.series.begin(), chart.series.end(), [](const Series& s) { return !s.points.empty(); });
    if (!any) return;
    chart.logarithmic = may_be_logarithmic && is_worth_a_logarithm(chart.series);
    if (chart.logarithmic) chart.unit += chart.unit.empty() ? "logarithmic" : ", logarithmic";
    out += svg_chart(chart);
  };
  Chart loss{"Loss", "nats per token", {}};
  for (size_t i = 0; i < runs.size(); ++i) add_curve(loss, one ? "training" : runs[i].name, losses(runs[i]), i, true);
  if (one && !validation(runs[0]).empty()) loss.series.push_back({"validation", validation(runs[0]), 1, false, true});
  put(loss, true);
  if (!one) {
    Chart measured{"Validation loss", "nats per token", {}};
    for (size_t i = 0; i < runs.size(); ++i)
      measured.series.push_back({runs[i].name, validation(runs[i]), static_cast<int>(i), false, true});
    put(measured, true);
  }
  for (const Curve& c : kCurves) {
    Chart chart{c.title, c.unit, {}, false, c.from_zero};
    for (size_t i = 0; i < runs.size(); ++i)
      add_curve(chart, one ? "" : runs[i].name, values(runs[i], c.key, c.scale), i, c.noisy);
    put(chart, std::string_view(c.key) == "norm");
  }
  for (const std::string& name : objective_metrics(runs)) {
    Chart chart{name, "", {}};
    for (size_t i = 0; i < runs.size(); ++i) add_curve(chart, one ? "" : runs[i].name, values(runs[i], name), i, true);
    put(chart, false);
  }
  for (const std::string& name : figure_names(runs)) {
    Chart chart{name, "", {}};
    for (size_t i = 0; i < runs.size(); ++i)
      chart.series.push_back({one ? "" : runs[i].name, figure(runs[i], name), static_cast<int>(i), false, true});
    put(chart, false);
  }
  return out + "</div>\n";
}

std::vector<Tile> tiles(const RunLog& run) {
  std::vector<Tile> out;
  const auto steps = run.number("steps");
  if (!run.steps.empty())
    out.push_back({"steps", fmt::format("{}", run.steps.back().step), steps ? fmt::format("of {:.0f}", *steps) : ""});
  if (const auto loss = run.train_loss())
    out.push_back({"training loss", number_text(loss), "mean of the last 50 steps"});
  if (const auto loss = run.last_validation())
    out.push_back({"validation loss", number_text(loss),
                   fmt::format("perplexity {:.3f}, best {}", std::exp(*loss), number_text(run.best_validation()))});
  if (const auto tokens = last(values(run, "tokens"))) out.push_back({"tokens", short_number(*tokens), ""});
  if (const auto epoch = last(values(run, "epoch")); epoch && !out.empty() && out.back().name == "tokens")
    out.back().remark = fmt::format("{:.2f} epochs", *epoch);
  if (const auto speed = median(values(run, "tokens_per_second")))
    out.push_back({"tokens a second", short_number(*speed), "median"});
  if (const auto mfu = median(values(run, "mfu"))) {
    const auto ceiling = run.number("ceiling_flops");
    out.push_back({"MFU", fmt::format("{:.1f} %", 100 * *mfu),
                   ceiling ? fmt::format("of {} FLOP/s measured", short_number(*ceiling)) : ""});
  }
  if (const auto memory = most(values(run, "memory"))) out.push_back({"memory", size_text(*memory), "most in use"});
  double seconds = 0;
  for (const Point& p : values(run, "seconds")) seconds += p.y;
  if (seconds > 0) out.push_back({"time of steps", format_duration(seconds), ""});
  return out;
}

std::string evaluations(const RunLog& run) {
  const std::set<std::string> names = figure_names({&run, 1});
  Table table{{"step", "validation loss"}, {}, 0};
  for (const std::string& name : names) table.head.push_back(name);
  const size_t from = run.evaluations.size() > kMostRows ? run.evaluations.size() - kMostRows : 0;
  for (size_t i = from; i < run.evaluations.size(); ++i) {
    const LoggedEvaluation& e = run.evaluations[i];
    std::vector<std::string> row = {fmt::format("{}", e.step), number_text(e.validation_loss)};
    for (const std::string& name : names) {
      const auto found = e.figures.find(name);
      row.push_back(found == e.figures.end() ? "-" : number_text(found->second));
    }
    table.rows.push_back(std::move(row));
  }
  std::string out = html_table(table);
  if (table.rows.size() > 12)
    out = fmt::format("<details><summary>{} evaluations</summary>{}</details>\n", table.rows.size(), out);
  return out;
}

std::string samples(const RunLog& run) {
  std::vector<const LoggedEvaluation*> with;
  for (const LoggedEvaluation& e : run.evaluations)
    if (!e.samples.empty()) with.push_back(&e);
  std::string out;
  const size_t from = with.size() > kMostSampled ? with.size() - kMostSampled : 0;
  for (size_t i = with.size(); i-- > from;) {  // newest first, and unfolded
    std::string inner;
    for (const LoggedSample& s : with[i]->samples)
      inner += fmt::format("<pre class=\"said\"><b>{}</b>{}</pre>\n", escaped(s.prompt), escaped(s.text));
    out += fmt::format("<details{}><summary>after step {}</summary>{}</details>\n", i + 1 == with.size() ? " open" : "",
                       with[i]->step, inner);
  }
  return out;
}

const json& list_of(const RunLog& run, const char* key) {
  static const json kNone = json::array();
  const auto found = run.run.find(key);
  return found != run.run.end() && found->is_array() ? *found : kNone;
}

std::string member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_number() ? found->dump() : std::string();
}

std::string trained(const RunLog& run) {
  Table about{{}, {}, 2};
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) about.rows.push_back({name, text});
  };
  line("model", run.text("model"));
  line("family", run.text("family"));
  line("begun from", run.text("base"));
  line("its weights, by hash", run.text("base_hash"));
  line("taught by", run.text("teacher"));
  line("its weights, by hash", run.text("teacher_hash"));
  line("adapter", run.text("adapter"));
  line("shipped as", run.text("ships"));
  if (const std::string moments = run.text("moments"); !run.text("optimizer").empty())
    line("optimizer", run.text("optimizer") + (moments.empty() ? "" : ", moments in " + moments));
  const auto all = run.number("parameters"), some = run.number("trained");
  if (all) line("parameters", fmt::format("{:.0f}", *all));
  if (some)
    line("trained", fmt::format("{:.0f}{}", *some,
                                all && *all > 0 ? fmt::format(" ({:.3g} %)", 100 * *some / *all) : std::string()));
  line("device", run.text("device"));
  if (const auto threads = run.number("threads")) line("threads", fmt::format("{:.0f}", *threads));
  if (const auto flops = run.number("flops_per_step"))
    line("work of a step", fmt::format("{} FLOP, recomputed work not counted", short_number(*flops)));
  if (run.starts > 1) line("starts", fmt::format("{}", run.starts));
  std::string out = html_table(about);
  Table what{{"trained", "held in", "tensors", "numbers"}, {}, 2};
  for (const json& t : list_of(run, "what")) {
    what.rows.push_back({member(t, "what"), member(t, "format"), member(t, "tensors"), member(t, "numbers")});
    if (what.rows.size() == kMostRows) break;
  }
  out += html_table(what);
  Table formats{{"held in", "tensors", "numbers", "bytes"}, {}, 1};
  for (const json& f : list_of(run, "formats"))
    formats.rows.push_back({member(f, "format"), member(f, "tensors"), member(f, "numbers"), member(f, "bytes")});
  return out + (formats.rows.empty() ? "" : "<h2>Formats</h2>\n") + html_table(formats);
}

std::string memory(const RunLog& run) {
  std::vector<Part> parts;
  for (const json& part : list_of(run, "memory")) {
    const auto bytes = part.is_object() ? part.find("bytes") : part.end();
    if (!part.is_object() || bytes == part.end() || !bytes->is_number()) continue;
    const auto number = bytes->get<double>();
    if (std::isfinite(number) && number >= 0) parts.push_back({member(part, "kind"), number});
    if (parts.size() == 32) break;
  }
  return html_parts(parts);
}

std::string files(const RunLog& run) {
  Table table{{"file", "hash (XXH3, 128 bits)", "bytes"}, {}, 2};
  for (const json& f : list_of(run, "files")) {
    const std::string path = member(f, "path");
    table.rows.push_back({path.empty() ? "the built-in text" : path, member(f, "xxh3_128"), member(f, "bytes")});
    if (table.rows.size() == kMostRows) break;
  }
  return html_table(table);
}

std::string events(const RunLog& run) {
  Table table{{"step", "what", ""}, {}, 3};
  for (const LoggedEvent& e : run.events) {
    table.rows.push_back({fmt::format("{}", e.step), e.kind, e.text});
    if (table.rows.size() == kMostRows) break;
  }
  return html_table(table);
}

std::string footer(std::span<const RunLog> runs) {
  std::string text = "Made by lumen from ";
  for (size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", runs[i].path.string());
    if (runs[i].skipped > 0) text += fmt::format(" ({} lines left out; {})", runs[i].skipped, runs[i].first_skipped);
  }
  return fmt::format("<footer>{}</footer>\n", escaped(text));
}

struct Summary {
  const char* name;
  std::string (*of)(const RunLog&);
};

std::string optional_short(std::optional<double> value) {
  return value ? short_number(*value) : "-";
}

const std::vector<Summary>& summaries() {
  static const std::vector<Summary> kAll = {
      {"steps", [](const RunLog& r) { return fmt::format("{}", r.steps.empty() ? 0 : r.steps.back().step); }},
      {"training", [](const RunLog& r) { return number_text(r.train_loss()); }},
      {"validation", [](const RunLog& r) { return number_text(r.last_validation()); }},
      {"best", [](const RunLog& r) { return number_text(r.best_validation()); }},
      {"tokens", [](const RunLog& r) { return optional_short(last(values(r, "tokens"))); }},
      {"tokens/s", [](const RunLog& r) { return optional_short(median(values(r, "tokens_per_second"))); }},
      {"MFU",
       [](const RunLog& r) {
         const auto mfu = median(values(r, "mfu"));
         return mfu ? fmt::format("{:.1f} %", 100 * *mfu) : std::string("-");
       }},
      {"memory",
       [](const RunLog& r) {
         const auto bytes = most(values(r, "memory"));
         return bytes ? size_text(*bytes) : std::string("-");
       }},
  };
  return kAll;
}

// Code points, as terminal columns; wide characters are not considered.
size_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string columns(const std::vector<std::vector<std::string>>& rows, size_t texts) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters(row[c]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - characters(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (c < texts ? row[c] + pad : pad + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string html_report(const RunLog& run) {
  const std::span<const RunLog> one(&run, 1);
  std::string about;
  for (const char* key : {"model", "device"})
    if (const std::string text = run.text(key); !text.empty()) about += (about.empty() ? "" : " · ") + text;
  std::string body = fmt::format("<h1>{}</h1><p class=\"sub\">{}</p>\n", escaped(run.name), escaped(about));
  body += html_tiles(tiles(run));
  body += html_section("Course", charts(one));
  body += html_section("Events", events(run));
  body += html_section("Evaluation", evaluations(run));
  body += html_section("Samples", samples(run));
  body += html_section("Training", trained(run));
  body += html_section("Memory", memory(run));
  body += html_section("Files", files(run));
  if (const std::string recipe = run.text("recipe"); !recipe.empty())
    body += html_section("Recipe", fmt::format("<pre>{}</pre>\n", escaped(recipe)));
  return html_page(run.name, body + footer(one));
}

std::string html_comparison(std::span<const RunLog> runs) {
  Table table{{"run"}, {}, 1};
  for (const Summary& s : summaries()) table.head.push_back(s.name);
  const std::set<std::string> names = figure_names(runs);
  for (const std::string& name : names) table.head.push_back(name);
  for (const RunLog& run : runs) {
    std::vector<std::string> row = {run.name};
    for (const Summary& s : summaries()) row.push_back(s.of(run));
    for (const std::string& name : names) row.push_back(number_text(last(figure(run, name))));
    table.rows.push_back(std::move(row));
  }
  Table differences{{"recipe"}, {}, runs.size() + 1};
  for (const RunLog& run : runs) differences.head.push_back(run.name);
  for (const RecipeDifference& d : recipe_differences(runs)) {
    std::vector<std::string> row = {d.key};
    row.insert(row.end(), d.values.begin(), d.values.end());
    differences.rows.push_back(std::move(row));
  }
  const std::string title = fmt::format("{} runs", runs.size());
  std::string body = fmt::format("<h1>{}</h1><p class=\"sub\">side by side</p>\n", title);
  body += html_table(table);
  body += html_section("Course", charts(runs));
  body += html_section("What differs", differences.rows.empty() ? "<p class=\"none\">the recipes are alike</p>\n"
                                                                : html_table(differences));
  return html_page(title, body + footer(runs));
}

std::string text_report(std::span<const RunLog> runs) {
  std::vector<std::vector<std::string>> rows = {{"run", "loss"}};
  for (const Summary& s : summaries()) rows[0].emplace_back(s.name);
  for (const RunLog& run : runs) {
    rows.push_back({run.name, sparkline(losses(run), 24)});
    for (const Summary& s : summaries()) rows.back().push_back(s.of(run));
  }
  std::string out = columns(rows, 2);
  const std::set<std::string> names = figure_names(runs);
  if (!names.empty()) {
    rows = {{"run"}};
    rows[0].insert(rows[0].end(), names.begin(), names.end());
    for (const RunLog& run : runs) {
      rows.push_back({run.name});
      for (const std::string& name : names) rows.back().push_back(number_text(last(figure(run, name))));
    }
    out += "\n" + columns(rows, 1);
  }
  const std::vector<RecipeDifference> differences = recipe_differences(runs);
  if (!differences.empty()) {
    rows = {{"what differs"}};
    for (const RunLog& run : runs) rows[0].push_back(run.name);
    for (const RecipeDifference& d : differences) {
      rows.push_back({d.key});
      rows.back().insert(rows.back().end(), d.values.begin(), d.values.end());
    }
    out += "\n" + columns(rows, runs.size() + 1);
  }
  for (const RunLog& run : runs) {
    for (const LoggedEvent& e : run.events)
      out += fmt::format("{}: step {}: {}: {}\n", run.name, e.step, e.kind, e.text);
    if (run.skipped > 0)
      out += fmt::format("{}: {} lines left out; {}\n", run.path.string(), run.skipped, run.first_skipped);
  }
  return out;
}

std::vector<RecipeDifference> recipe_differences(std::span<const RunLog> runs) {
  std::vector<std::optional<Recipe>> recipes;
  for (const RunLog& run : runs) {
    recipes.emplace_back();
    const std::string text = run.text("recipe");
    if (text.empty()) continue;
    try {
      recipes.back() = parse_recipe(text, run.path.string());
    } catch (const Error& e) {
      warn(fmt::format("{}: its recipe cannot be read: {}", run.path.string(), e.what()));
    }
  }
  const auto first = std::find_if(recipes.begin(), recipes.end(), [](const auto& r) { return r.has_value(); });
  std::map<std::string, std::vector<std::string>> found;
  for (size_t i = 0; first != recipes.end() && i < recipes.size(); ++i) {
    if (!recipes[i]) continue;
    for (const RecipeChange& c : recipe_changes(**first, *recipes[i])) {
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

}  // namespace lumen::model
