#include "model/report/compression/compression_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "model/report/chart.h"
#include "model/report/page.h"

namespace lumen::model {
namespace {

constexpr size_t kMostHistograms = 8;
constexpr size_t kMostColumns = 48;  // of the map
constexpr size_t kMostRows = 1000;   // of the map and of other tables
constexpr size_t kMostSaid = 12;     // tensors of a cell that its tooltip lists
constexpr int kOwnColors = 6;        // of strategies and roles; the next two are for the choice and the base
constexpr int kChosen = 4, kBase = 7;
constexpr double kBeyond = 1.6;

using Tensors = std::vector<const CompressionReport::Tensor*>;

int color(size_t i) {
  static constexpr int kColors[kOwnColors] = {0, 1, 2, 3, 5, 6};
  return kColors[i % kOwnColors];
}

template <typename T>
size_t place_of(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return found - list.begin();
  list.push_back(value);
  return list.size() - 1;
}

// Points by ascending x that are below all earlier ones.
std::vector<Point> falling(std::vector<Point> points) {
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return std::tie(a.x, a.y) < std::tie(b.x, b.y); });
  std::vector<Point> out;
  for (const Point& p : points)
    if (out.empty() || p.y < out.back().y) out.push_back(p);
  return out;
}

// The chart of size against quality: KL divergences where there are any, else perplexities; bits per weight where
// known, else bytes.
class QualityChart {
 public:
  explicit QualityChart(const CompressionReport& r) : r_(r) {
    divergent_ = r.result && r.result->quality.kl;
    bits_ = !r.result || r.result->bits > 0;
    for (const auto& p : r.points) {
      divergent_ = divergent_ || p.quality.kl;
      bits_ = bits_ && p.bits > 0;
    }
  }

  std::string text() {
    std::vector<Point> measured;
    std::vector<std::string> strategies;
    std::vector<Series> dots;
    Series chosen{"chosen", {}, kChosen, false, true, false, {}, true};
    for (const auto& p : r_.points) {
      const auto at = place(p.bytes, p.bits, p.quality);
      if (!at) continue;
      measured.push_back(*at);
      const size_t s = place_of(strategies, p.strategy);
      if (s == dots.size())
        dots.push_back({p.strategy.empty() ? "other" : p.strategy, {}, color(s), false, true, false});
      put(p.chosen ? chosen : dots[s], *at, p.label);
    }
    if (r_.result && chosen.points.empty())
      if (const auto at = place(r_.result->bytes, r_.result->bits, r_.result->quality)) {
        measured.push_back(*at);
        put(chosen, *at, r_.result->name.empty() ? "result" : r_.result->name);
      }
    if (measured.empty()) return {};
    Chart chart{"Size against quality", divergent_ ? "KL divergence, nats per token" : "perplexity", {}};
    chart.across = bits_ ? "bits per weight" : "GiB";
    chart.series.push_back({"best measured", falling(measured), kBase});
    if (divergent_) {
      Series predicted{"predicted front", {}, 5};
      for (const auto& f : r_.front)
        if (f.score > 0 && (!bits_ || f.bits > 0)) predicted.points.push_back({bits_ ? f.bits : gib(f.bytes), f.score});
      // Points far beyond the measured ones would only shrink the measured part.
      const double most = kBeyond * std::ranges::max(measured, {}, &Point::x).x;
      std::erase_if(predicted.points, [&](const Point& p) { return p.x > most; });
      if (!predicted.points.empty()) chart.series.push_back(std::move(predicted));
    }
    for (Series& s : dots)
      if (!s.points.empty()) chart.series.push_back(sorted(std::move(s)));
    if (!chosen.points.empty()) chart.series.push_back(sorted(std::move(chosen)));
    chart.logarithmic = is_worth_a_logarithm(chart.series);
    if (chart.logarithmic) chart.unit += ", logarithmic";
    return "<div class=\"wide\">" + svg_chart(chart) + "</div>\n";
  }

 private:
  static double gib(double bytes) { return bytes / (1 << 30); }
  std::optional<Point> place(int64_t bytes, double bits, const MeasuredQuality& q) const {
    const std::optional<double> y = divergent_ ? q.kl : q.ppl;
    if (!y) return std::nullopt;
    return Point{bits_ ? bits : gib(bytes), *y};
  }
  static void put(Series& to, const Point& at, const std::string& label) {
    to.points.push_back(at);
    to.labels.push_back(label);
  }
  // By ascending x, labels with their points.
  static Series sorted(Series s) {
    std::vector<size_t> order;
    for (size_t i = 0; i < s.points.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return s.points[a].x < s.points[b].x; });
    Series out = s;
    for (size_t i = 0; i < order.size(); ++i) {
      out.points[i] = s.points[order[i]];
      out.labels[i] = s.labels[order[i]];
    }
    return out;
  }

  const CompressionReport& r_;
  bool divergent_ = false, bits_ = true;
};

std::string said(const CompressionReport::Tensor& t) {
  std::string out = fmt::format("{}: {}, {:.3f} bits", t.name, t.format, t.bits);
  if (const auto error = error_of(t)) out += fmt::format(", error {:.4g}", *error);
  if (!t.reason.empty()) out += "; " + t.reason;
  return out;
}

std::string cell(const Tensors& tensors) {
  if (tensors.empty()) return "<td class=\"none\"></td>";
  double bytes = 0, numbers = 0;
  bool alike = true;
  std::string tip;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CompressionReport::Tensor& t = *tensors[i];
    bytes += t.bytes;
    numbers += t.bits > 0 ? 8.0 * t.bytes / t.bits : 0;
    alike = alike && t.format == tensors[0]->format;
    if (i < kMostSaid) tip += (i == 0 ? "" : "\n") + said(t);
  }
  if (tensors.size() > kMostSaid) tip += fmt::format("\nand {} others", tensors.size() - kMostSaid);
  const double bits = numbers > 0 ? 8 * bytes / numbers : tensors[0]->bits;
  std::string text = alike ? tensors[0]->format : "mixed";
  if (tensors.size() > 1) text += fmt::format(" \u00d7{}", tensors.size());
  return fmt::format("<td style=\"--bits:{:.2f}\" title=\"{}\">{}</td>", std::clamp(bits, 0.5, 14.0), escaped(tip),
                     escaped(text));
}

std::string map_table(const std::string& caption, const std::vector<std::pair<std::string, Tensors>>& rows) {
  std::vector<std::string> roles;
  for (const auto& [name, tensors] : rows)
    for (const auto* t : tensors) place_of(roles, t->role);
  const size_t columns = std::min(roles.size(), kMostColumns);
  std::string out = fmt::format(
      "<div class=\"scroll\"><table class=\"map\"><caption>{}{}</caption><tr><td class=\"none\"></td>",
      escaped(caption), columns < roles.size() ? fmt::format("; {} of {} roles", columns, roles.size()) : "");
  for (size_t c = 0; c < columns; ++c)
    out += fmt::format("<th scope=\"col\">{}</th>", escaped(roles[c].empty() ? "other" : roles[c]));
  out += "</tr>\n";
  for (const auto& [name, tensors] : rows) {
    std::vector<Tensors> cells(roles.size());
    for (const auto* t : tensors) cells[place_of(roles, t->role)].push_back(t);
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(name));
    for (size_t c = 0; c < columns; ++c) out += cell(cells[c]);
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// Names and numbers as bars, the largest first.
struct Bar {
  std::string name;
  double value = 0;
  std::string text, remark;
};
std::string bar_table(const std::vector<std::string>& head, const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& b : bars) most = std::max(most, b.value);
  std::string out = "<div class=\"scroll\"><table><tr>";
  for (const std::string& h : head) out += fmt::format("<th scope=\"col\">{}</th>", escaped(h));
  out += "</tr>\n";
  for (const Bar& b : bars) {
    out += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td style=\"width:220px\"><i class=\"gauge c0\" style=\"width:{:.1f}%\">"
        "</i></td>",
        escaped(b.name), escaped(b.text), most > 0 ? 100 * (b.value / most) : 0);
    if (head.size() > 3) out += fmt::format("<td>{}</td>", escaped(b.remark));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string left_out(size_t all, size_t shown, const char* what) {
  return all <= shown ? "" : fmt::format("<p class=\"none\">{} {} more are in the document</p>\n", all - shown, what);
}

}  // namespace

std::string quality_chart(const CompressionReport& report) {
  return QualityChart(report).text();
}

std::string layer_chart(const CompressionReport& report) {
  std::vector<std::string> roles;
  std::vector<std::map<int64_t, std::pair<double, int>>> sums;  // by role and layer
  for (const auto& t : report.tensors) {
    const auto error = error_of(t);
    if (t.layer < 0 || !error) continue;
    const size_t role = place_of(roles, t.role);
    if (role == sums.size()) sums.emplace_back();
    auto& [sum, count] = sums[role][t.layer];
    sum += *error;
    ++count;
  }
  Chart chart{"Error by layer", "relative, of weights; weighted by importance where that is known", {}, false, true};
  chart.across = "layer";
  chart.whole = true;
  for (size_t r = 0; r < roles.size(); ++r) {
    Series s{roles[r].empty() ? "other" : roles[r], {}, static_cast<int>(r % 8)};
    for (const auto& [layer, sum] : sums[r]) {
      Point& p = s.points.emplace_back();
      p.x = layer;
      p.y = sum.first / sum.second;
    }
    chart.series.push_back(std::move(s));
  }
  if (chart.series.empty()) return {};
  chart.logarithmic = is_worth_a_logarithm(chart.series);
  if (chart.logarithmic) chart.unit += ", logarithmic";
  return "<div class=\"wide\">" + svg_chart(chart) + "</div>\n";
}

std::string format_map(const CompressionReport& report) {
  std::map<int64_t, Tensors> layers;
  for (const auto& t : report.tensors) layers[t.layer].push_back(&t);
  std::vector<std::pair<std::string, Tensors>> rows;
  std::string out;
  for (const auto& [layer, tensors] : layers)
    if (layer >= 0 && rows.size() < kMostRows) rows.emplace_back(fmt::format("{}", layer), tensors);
  const size_t in_layers = layers.size() - layers.count(-1);
  if (!rows.empty()) out += map_table("layers down, roles across; the deeper the colour, the more bits", rows);
  out += left_out(in_layers, rows.size(), "layers");
  if (const auto found = layers.find(-1); found != layers.end())
    out += map_table("tensors of no layer", {{"model", found->second}});
  return out;
}

std::string histograms(const CompressionReport& report) {
  Tensors with;
  for (const auto& t : report.tensors)
    if (t.histogram) with.push_back(&t);
  std::stable_sort(with.begin(), with.end(),
                   [](const auto* a, const auto* b) { return error_of(*a).value_or(0) > error_of(*b).value_or(0); });
  std::string out;
  for (size_t i = 0; i < std::min(with.size(), kMostHistograms); ++i) {
    const CompressionReport::Tensor& t = *with[i];
    const auto error = error_of(t);
    const std::string unit = t.format + (error ? fmt::format(", error {:.4g}", *error) : "");
    out += svg_histogram({t.name, unit, t.histogram->edges, t.histogram->before, t.histogram->after});
  }
  if (out.empty()) return {};
  return "<div class=\"charts\">\n" + out + "</div>\n" + left_out(with.size(), kMostHistograms, "histograms");
}

std::string spike_table(const CompressionReport& report) {
  std::vector<CompressionReport::Spike> spikes = report.spikes;
  std::stable_sort(spikes.begin(), spikes.end(), [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
  std::vector<Bar> bars;
  for (const auto& s : spikes) {
    if (bars.size() == kMostRows) break;
    bars.push_back({s.name, s.ratio, fmt::format("{:.4g}", s.ratio), s.kept ? "kept at a high precision" : ""});
  }
  if (bars.empty()) return {};
  return bar_table({"projection", "largest by the others", "", ""}, bars) +
         left_out(spikes.size(), bars.size(), "rows");
}

std::string expert_table(const CompressionReport& report) {
  std::vector<CompressionReport::Expert> experts = report.experts;
  std::stable_sort(experts.begin(), experts.end(), [](const auto& a, const auto& b) {
    return a.layer != b.layer ? a.layer < b.layer : a.share > b.share;
  });
  std::vector<Bar> bars;
  for (const auto& e : experts) {
    if (bars.size() == kMostRows) break;
    bars.push_back({fmt::format("layer {}, expert {}", e.layer, e.expert), e.share, fmt::format("{:.4f}", e.share),
                    fmt::format("{}; V {:.4f}, margin {:.3f}, {} tokens", e.format, e.spread, e.margin, e.rows)});
  }
  if (bars.empty()) return {};
  return bar_table({"expert", "share of its layer", "", ""}, bars) + left_out(experts.size(), bars.size(), "rows");
}

std::string stage_table(const CompressionReport& report) {
  if (report.stages.empty()) return {};
  std::vector<Bar> bars;
  double all = 0;
  for (const auto& s : report.stages) {
    all += s.seconds;
    if (bars.size() < kMostRows) bars.push_back({s.name, s.seconds, format_duration(s.seconds), ""});
  }
  return bar_table({"stage", "time", ""}, bars) + left_out(report.stages.size(), bars.size(), "stages") +
         fmt::format("<p class=\"sub\">together {}</p>\n", format_duration(all));
}

}  // namespace lumen::model
