#include "model/report/compression/compression_page.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "model/report/page.h"

namespace lumen::model::report {
namespace {

std::string with_error(const std::optional<double>& value, const std::optional<double>& error) {
  if (!value) return "-";
  return fmt::format("{:.5g}", *value) + (error ? fmt::format(" \u00b1 {:.2g}", *error) : "");
}

}  // namespace

std::string html_report(const CompressionReport& r) {
  std::string subtitle = r.result ? fmt::format("{} to {}", size_text(r.base.bytes), size_text(r.result->bytes))
                                  : fmt::format("{} models compared", r.points.size() + 1);
  if (!r.created.empty()) subtitle += " \u00b7 " + r.created;
  return html_page(nlohmann::ordered_json{{"lumen_report", 1},
                                          {"title", r.model.empty() ? "compressed model" : r.model},
                                          {"subtitle", subtitle},
                                          {"compression", to_json(r)}});
}

std::string text_report(const CompressionReport& r) {
  Table models{{"model", "strategy", "size", "bits", "KL divergence", "perplexity", "tokens/s"}, {}, 2};
  const auto row = [&](const std::string& name, const std::string& strategy, int64_t bytes, double bits,
                       const MeasuredQuality& q) {
    models.rows.push_back({printable(name), printable(strategy), size_text(bytes),
                           bits > 0 ? fmt::format("{:.3f}", bits) : "-", with_error(q.kl, q.kl_error),
                           with_error(q.ppl, q.ppl_error),
                           q.tokens_per_s ? fmt::format("{:.4g}", *q.tokens_per_s) : "-"});
  };
  row(r.base.name.empty() ? "base" : r.base.name, "base", r.base.bytes, r.base.bits, r.base.quality);
  bool is_shown = false;
  for (const auto& p : r.points) {
    row((p.chosen ? "* " : "") + p.label, p.strategy, p.bytes, p.bits, p.quality);
    is_shown = is_shown || p.chosen;
  }
  if (r.result && !is_shown)
    row("* " + (r.result->name.empty() ? "result" : r.result->name), "", r.result->bytes, r.result->bits,
        r.result->quality);
  std::string out = text_table(models);
  for (const auto& t : r.tasks)
    out += fmt::format("{} {} {}: {:.4f}\n", printable(t.task), printable(t.figure), printable(t.model), t.value);
  for (const std::string& n : r.notes) out += printable(n) + "\n";
  return out;
}

}  // namespace lumen::model::report
