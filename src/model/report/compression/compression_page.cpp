#include "model/report/compression/compression_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "model/report/chart.h"
#include "model/report/compression/compression_charts.h"
#include "model/report/page.h"

namespace lumen::model {
namespace {

constexpr size_t kMostRows = 4000;      // of the table of tensors
constexpr size_t kMostCandidates = 16;  // shown per tensor
constexpr size_t kOpenRows = 40;        // longer tables are folded

std::string with_error(const std::optional<double>& value, const std::optional<double>& error, const char* none = "-") {
  if (!value) return none;
  return fmt::format("{:.5g}", *value) + (error ? fmt::format(" \u00b1 {:.2g}", *error) : "");
}

std::string percent(const std::optional<double>& part) {
  return part ? fmt::format("{:.2f} %", 100 * *part) : "-";
}

std::string rate(const std::optional<double>& x) {
  return x ? fmt::format("{:.4g}", *x) : "-";
}

std::vector<Tile> tiles(const CompressionReport& r) {
  std::vector<Tile> out;
  const CompressionReport::Whole& now = r.result ? *r.result : r.base;
  out.push_back(
      {"size", bytes_text(now.bytes),
       r.result && r.base.bytes > 0 && now.bytes > 0
           ? fmt::format("of {}, {:.2f} times smaller", bytes_text(r.base.bytes), r.base.bytes / (1.0 * now.bytes))
           : ""});
  if (now.bits > 0)
    out.push_back({"bits per weight", fmt::format("{:.3f}", now.bits),
                   r.result && r.base.bits > 0 ? fmt::format("of {:.3f}", r.base.bits) : ""});
  const MeasuredQuality& q = now.quality;
  if (q.kl)
    out.push_back({"KL divergence", fmt::format("{:.5g}", *q.kl),
                   q.kl_error ? fmt::format("\u00b1 {:.2g} nats per token", *q.kl_error) : "nats per token"});
  if (q.ppl) {
    std::string remark = q.ppl_error ? fmt::format("\u00b1 {:.2g}", *q.ppl_error) : "";
    if (r.result && r.base.quality.ppl)
      remark += fmt::format("{}of {:.5g}", remark.empty() ? "" : ", ", *r.base.quality.ppl);
    out.push_back({"perplexity", fmt::format("{:.5g}", *q.ppl), remark});
  }
  if (q.same_top) out.push_back({"same likeliest token", percent(q.same_top), ""});
  if (q.tokens_per_s)
    out.push_back(
        {"tokens a second", fmt::format("{:.4g}", *q.tokens_per_s),
         r.result && r.base.quality.tokens_per_s ? fmt::format("base {:.4g}", *r.base.quality.tokens_per_s) : ""});
  if (r.predicted) {
    std::string remark = r.proved.value_or(false) ? "the least possible within the budget" : "";
    if (remark.empty() && r.bound) remark = fmt::format("at least {:.5g}", *r.bound);
    out.push_back({"predicted loss", fmt::format("{:.5g}", *r.predicted), remark});
  }
  return out;
}

std::string comparison(const CompressionReport& r) {
  Table table{{"model", "strategy", "size", "bits", "KL divergence", "99 %", "most", "same token", "perplexity",
               "cosine", "prompt tok/s", "tok/s"},
              {},
              2};
  const auto row = [&](const std::string& name, const std::string& strategy, int64_t bytes, double bits,
                       const MeasuredQuality& q) {
    table.rows.push_back({name, strategy, bytes_text(bytes), bits > 0 ? fmt::format("{:.3f}", bits) : "-",
                          with_error(q.kl, q.kl_error), rate(q.kl_p99), rate(q.kl_most), percent(q.same_top),
                          with_error(q.ppl, q.ppl_error), q.cosine ? fmt::format("{:.6f}", *q.cosine) : "-",
                          rate(q.prompt_tokens_per_s), rate(q.tokens_per_s)});
  };
  row(r.base.name.empty() ? "base" : r.base.name, "base", r.base.bytes, r.base.bits, r.base.quality);
  bool shown = false;
  for (const auto& p : r.points) {
    const std::string strategy = p.strategy + (p.chosen ? p.strategy.empty() ? "chosen" : ", chosen" : "");
    row(p.label, strategy, p.bytes, p.bits, p.chosen && r.result ? r.result->quality : p.quality);
    shown = shown || p.chosen;
  }
  if (r.result && !shown)
    row(r.result->name.empty() ? "result" : r.result->name, "chosen", r.result->bytes, r.result->bits,
        r.result->quality);
  // Columns without any value are left out.
  for (size_t c = table.head.size(); c-- > 2;) {
    if (!std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& line) { return line[c] == "-"; })) continue;
    table.head.erase(table.head.begin() + c);
    for (auto& line : table.rows) line.erase(line.begin() + c);
  }
  return html_table(table);
}

std::string tasks(const CompressionReport& r) {
  Table table{{"task", "figure", "model", "value", "error"}, {}, 3};
  for (const auto& t : r.tasks)
    table.rows.push_back(
        {t.task, t.figure, t.model, fmt::format("{:.4f}", t.value), t.error ? fmt::format("{:.4f}", *t.error) : "-"});
  return html_table(table);
}

std::string candidates(const CompressionReport::Tensor& t) {
  std::string out;
  for (size_t i = 0; i < t.candidates.size() && i < kMostCandidates; ++i) {
    const auto& c = t.candidates[i];
    out += fmt::format("{}{} {}: {:.3g}", i == 0 ? "" : " \u00b7 ", c.format, bytes_text(c.bytes), c.score);
  }
  if (t.candidates.size() > kMostCandidates) out += fmt::format(" and {} more", t.candidates.size() - kMostCandidates);
  return out;
}

std::string tensors(const CompressionReport& r) {
  Table table{{"tensor", "format", "strategy", "why", "size", "bits", "error", "weighted"}, {}, 4};
  Table others{{"tensor", "candidates: size and predicted loss"}, {}, 2};
  for (const auto& t : r.tensors) {
    if (table.rows.size() == kMostRows) break;
    table.rows.push_back({t.name, t.format, t.strategy, t.reason, bytes_text(t.bytes), fmt::format("{:.3f}", t.bits),
                          rate(t.error), rate(t.weighted_error)});
    if (!t.candidates.empty()) others.rows.push_back({t.name, candidates(t)});
  }
  if (table.rows.empty()) return {};
  const auto folded = [](const Table& rows, const char* what) {
    return fmt::format("<details><summary>{} {}</summary>{}</details>\n", rows.rows.size(), what, html_table(rows));
  };
  std::string out = table.rows.size() > kOpenRows ? folded(table, "tensors") : html_table(table);
  if (!others.rows.empty()) out += folded(others, "tensors with their candidates");
  if (r.tensors.size() > kMostRows)
    out += fmt::format("<p class=\"none\">{} more tensors are in the document</p>\n", r.tensors.size() - kMostRows);
  return out;
}

std::string about(const CompressionReport& r) {
  Table table{{}, {}, 2};
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) table.rows.push_back({name, text});
  };
  line("base", r.base.name);
  line("result", r.result ? r.result->name : "");
  line("budget", r.budget);
  line("measured on", r.text);
  line("device", r.device);
  if (!r.front.empty())
    line("predicted front",
         fmt::format("{} points, {}", r.front.size(),
                     r.front_exact ? "all that can be had" : "on the convex hull of the predicted choices"));
  return html_table(table);
}

std::string notes(const CompressionReport& r) {
  std::string out;
  for (const std::string& n : r.notes) out += fmt::format("<li>{}</li>\n", escaped(n));
  return out.empty() ? "" : "<ul>" + out + "</ul>\n";
}

}  // namespace

std::string html_report(const CompressionReport& r) {
  const std::string title = r.model.empty() ? "compressed model" : r.model;
  std::string sub = r.result ? fmt::format("{} to {}", bytes_text(r.base.bytes), bytes_text(r.result->bytes))
                             : fmt::format("{} models compared", r.points.size() + 1);
  if (!r.created.empty()) sub += " \u00b7 " + r.created;
  std::string body = fmt::format("<h1>{}</h1><p class=\"sub\">{}</p>\n", escaped(title), escaped(sub));
  body += html_tiles(tiles(r));
  body += html_section("Size and quality", quality_chart(r) + comparison(r));
  body += html_section("Tasks", tasks(r));
  body += html_section("Error by layer", layer_chart(r));
  body += html_section("Map of formats", format_map(r));
  body += html_section("Weights before and after", histograms(r));
  body += html_section("Spikes", spike_table(r));
  body += html_section("Experts", expert_table(r));
  body += html_section("Why each tensor got its format", tensors(r));
  body += html_section("Time", stage_table(r));
  body += html_section("Notes", notes(r));
  body += html_section("Measurements", about(r));
  return html_page(title, body + "<footer>Made by lumen</footer>\n");
}

std::string text_report(const CompressionReport& r) {
  std::string out;
  for (const Tile& t : tiles(r)) out += fmt::format("{:<22} {:>14}  {}\n", t.name, t.value, t.remark);
  for (const auto& p : r.points) {
    out += fmt::format("{}{} ({}): {}, {:.3f} bits", p.chosen ? "* " : "  ", printable(p.label), printable(p.strategy),
                       bytes_text(p.bytes), p.bits);
    if (p.quality.kl) out += fmt::format(", KL {}", with_error(p.quality.kl, p.quality.kl_error));
    if (p.quality.ppl) out += fmt::format(", perplexity {}", with_error(p.quality.ppl, p.quality.ppl_error));
    out += "\n";
  }
  for (const auto& t : r.tasks)
    out += fmt::format("  {} {} {}: {:.4f}\n", printable(t.task), printable(t.figure), printable(t.model), t.value);
  for (const std::string& n : r.notes) out += printable(n) + "\n";
  return out;
}

}  // namespace lumen::model
