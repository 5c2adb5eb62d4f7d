#include "model/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/printable.h"

namespace lumen::model {
namespace {

constexpr double kWidth = 640, kHeight = 250, kLeft = 58, kRight = 14, kTop = 10, kBottom = 30;
constexpr size_t kPlotted = 400;   // intervals of x to which a curve is thinned
constexpr size_t kTooltips = 160;  // per curve
constexpr int kColors = 8;

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  void take(double v) {
    least = std::min(least, v);
    most = std::max(most, v);
  }
  bool is_empty() const { return !(least <= most); }
  double span() const { return most - least; }
};

// Maps values to picture coordinates.
class Axes {
 public:
  Axes(const Chart& chart) : logarithmic_(chart.logarithmic) {
    for (const Series& s : chart.series) {
      for (const Point& p : s.points) {
        x_.take(p.x);
        y_.take(height(p.y));
      }
    }
    if (y_.is_empty()) return;
    if (chart.from_zero && !logarithmic_) y_.take(0);
    if (x_.span() <= 0) x_ = {x_.least - 0.5, x_.most + 0.5};
    const double room = y_.span() > 0 ? 0.04 * y_.span() : std::max(std::abs(y_.most) * 0.1, 1e-12);
    y_.most += room;
    if (!chart.from_zero || y_.least < 0) y_.least -= room;
  }
  bool is_empty() const { return y_.is_empty(); }
  double x(double v) const { return kLeft + (v - x_.least) / x_.span() * (kWidth - kLeft - kRight); }
  double y(double v) const {
    return kHeight - kBottom - (height(v) - y_.least) / y_.span() * (kHeight - kTop - kBottom);
  }
  std::vector<double> x_ticks() const { return ticks(x_.least, x_.most, 6); }
  std::vector<double> y_ticks() const {
    if (!logarithmic_) return ticks(y_.least, y_.most, 5);
    std::vector<double> out;
    const int first = static_cast<int>(std::floor(y_.least)), last = static_cast<int>(std::ceil(y_.most));
    const int stride = std::max(1, (last - first) / 6);
    for (int e = first; e <= last; e += stride) {
      for (const double m : last - first <= 2 ? std::vector<double>{1, 2, 5} : std::vector<double>{1}) {
        const double v = m * std::pow(10.0, e);
        if (height(v) >= y_.least && height(v) <= y_.most) out.push_back(v);
      }
    }
    return out;
  }

 private:
  double height(double v) const { return logarithmic_ ? std::log10(v) : v; }

  bool logarithmic_;
  Range x_, y_;
};

std::string path_of(const std::vector<Point>& points, const Axes& axes) {
  std::string d;
  for (const Point& p : points) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", axes.x(p.x), axes.y(p.y));
  return d;
}

std::string tooltip(const Series& s, const Chart& chart, size_t i, const Point& p) {
  const std::string& name = s.labels.empty() ? s.name : s.labels[i];
  const std::string at = chart.across.empty() ? fmt::format("step {}", static_cast<int64_t>(p.x))
                                              : fmt::format("{} {:.6g}", chart.across, p.x);
  return fmt::format("{}{}{}: {:.6g}", escaped(name), name.empty() ? "" : ", ", escaped(at), p.y);
}

std::string curve(const Series& s, const Chart& chart, const Axes& axes) {
  const int color = ((s.color % kColors) + kColors) % kColors;
  std::string out;
  const std::vector<Point> points = s.dots ? s.points : thinned(s.points, kPlotted);
  if (points.size() > 1 && s.line)
    out += fmt::format("<path class=\"{} c{}\" d=\"{}\"/>\n", s.faint ? "faint" : "line", color, path_of(points, axes));
  if (s.faint) return out;
  const size_t stride = points.size() / kTooltips + 1;
  for (size_t i = 0; i < points.size(); i += stride) {
    const Point& p = points[i];
    const bool seen = s.dots || points.size() == 1;
    out += fmt::format("<circle class=\"{} c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
                       seen ? "dot" : "hit", color, axes.x(p.x), axes.y(p.y),
                       s.large ? 6
                       : seen  ? 3
                               : 5,
                       tooltip(s, chart, i, p));
  }
  return out;
}

}  // namespace

std::vector<double> ticks(double least, double most, int count) {
  const double span = most - least;
  if (!(span > 0) || !std::isfinite(span) || count < 1) return {least};
  const double raw = span / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double part = raw / power;
  const double step = (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power;
  std::vector<double> out;
  // In whole steps, so that rounding does not accumulate.
  const double first = std::ceil(least / step - 1e-9), last = std::floor(most / step + 1e-9);
  for (double i = first; i <= last && out.size() < 100; ++i) out.push_back(i == 0 ? 0 : i * step);
  return out;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.3g}", value);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}}) {
    if (size >= unit) return fmt::format("{:.4g}{}", value / (unit == 1e4 ? 1e3 : unit), name);
  }
  return fmt::format("{:.4g}", value);
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t most) {
  if (most == 0 || points.size() <= 2 * most) return points;
  std::vector<Point> out;
  for (size_t part = 0; part < most; ++part) {
    const size_t begin = part * points.size() / most, end = (part + 1) * points.size() / most;
    const auto less = [](const Point& a, const Point& b) { return a.y < b.y; };
    const auto [low, high] = std::minmax_element(points.begin() + begin, points.begin() + end, less);
    out.push_back(low->x <= high->x ? *low : *high);
    if (low != high) out.push_back(low->x <= high->x ? *high : *low);
  }
  return out;
}

std::vector<Point> smoothed(const std::vector<Point>& points, double span) {
  const double keep = 1 - 1 / std::max(span, 1.0);
  std::vector<Point> out = points;
  double sum = 0, weight = 0;
  for (Point& p : out) {
    sum = keep * sum + p.y;
    weight = keep * weight + 1;
    p.y = sum / weight;
  }
  return out;
}

bool is_worth_a_logarithm(const std::vector<Series>& series) {
  Range range;
  for (const Series& s : series)
    for (const Point& p : s.points) range.take(p.y);
  return !range.is_empty() && range.least > 0 && range.most > 30 * range.least;
}

std::string svg_chart(const Chart& chart) {
  std::string out = fmt::format("<figure class=\"card\"><figcaption><b>{}</b>{}", escaped(chart.title),
                                chart.unit.empty() ? "" : fmt::format(" <small>{}</small>", escaped(chart.unit)));
  size_t named = 0;
  for (const Series& s : chart.series) named += s.faint || s.name.empty() ? 0 : 1;
  if (named > 1) {
    out += "<span class=\"legend\">";
    for (const Series& s : chart.series)
      if (!s.faint && !s.name.empty())
        out += fmt::format("<span><i class=\"c{}\"></i>{}</span>", ((s.color % kColors) + kColors) % kColors,
                           escaped(s.name));
    out += "</span>";
  }
  out += "</figcaption>\n";
  const Axes axes(chart);
  if (axes.is_empty()) return out + "<p class=\"none\">nothing was recorded</p></figure>\n";
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight,
                     escaped(chart.title));
  for (const double v : axes.y_ticks()) {
    out += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"y\" x=\"{}\" y=\"{:.1f}\">{}</text>\n",
                       kLeft, axes.y(v), kWidth - kRight, kLeft - 7, axes.y(v) + 4, short_number(v));
  }
  for (const double v : axes.x_ticks()) {
    if ((chart.across.empty() || chart.whole) && v != std::floor(v)) continue;
    out +=
        fmt::format("<path class=\"tick\" d=\"M{0:.1f} {1}v4\"/><text class=\"x\" x=\"{0:.1f}\" y=\"{2}\">{3}</text>\n",
                    axes.x(v), kHeight - kBottom, kHeight - kBottom + 17, short_number(v));
  }
  out += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>\n", kLeft, kHeight - kBottom, kWidth - kRight);
  if (!chart.across.empty())
    out += fmt::format("<text class=\"across\" x=\"{}\" y=\"{}\">{}</text>\n", kWidth - kRight, kHeight - kBottom - 5,
                       escaped(chart.across));
  for (const bool faint : {true, false})
    for (const Series& s : chart.series)
      if (s.faint == faint) out += curve(s, chart, axes);
  return out + "</svg></figure>\n";
}

std::string svg_histogram(const Histogram& h) {
  std::string out =
      fmt::format("<figure class=\"card\"><figcaption><b>{}</b> <small>{}</small>", escaped(h.title), escaped(h.unit));
  if (!h.after.empty())
    out +=
        "<span class=\"legend\"><span><i class=\"c7\"></i>before</span><span><i class=\"c0\"></i>after</span></span>";
  out += "</figcaption>\n";
  double most = 0;
  for (const auto* counts : {&h.before, &h.after})
    for (const double c : *counts) most = std::max(most, c);
  const size_t bins = h.before.size();
  if (bins == 0 || h.edges.size() != bins + 1 || !(most > 0) || !(h.edges.back() > h.edges.front()))
    return out + "<p class=\"none\">nothing was recorded</p></figure>\n";
  const double wide = kWidth - kLeft - kRight, high = kHeight - kTop - kBottom, floor = kHeight - kBottom;
  const double least = h.edges.front(), span = h.edges.back() / 2 - least / 2;  // half: avoids overflow
  const auto x = [&](double v) { return kLeft + (v / 2 - least / 2) / span * wide; };
  const auto y = [&](double c) { return floor - c / most * high; };
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight, escaped(h.title));
  for (size_t i = 0; i < h.after.size() && i < bins; ++i)
    out += fmt::format(
        "<path class=\"bin c0\" d=\"M{0:.1f} {1}V{2:.1f}H{3:.1f}V{1}z\"><title>{4} to {5}: {6:.6g}, before {7:.6g}"
        "</title></path>\n",
        x(h.edges[i]), floor, y(h.after[i]), x(h.edges[i + 1]), short_number(h.edges[i]), short_number(h.edges[i + 1]),
        h.after[i], h.before[i]);
  std::string outline = fmt::format("M{:.1f} {}", x(least), floor);
  for (size_t i = 0; i < bins; ++i) outline += fmt::format("V{:.1f}H{:.1f}", y(h.before[i]), x(h.edges[i + 1]));
  out += fmt::format("<path class=\"line c7\" d=\"{}V{}\"/>\n", outline, floor);
  for (const double v : ticks(least, h.edges.back(), 6))
    out +=
        fmt::format("<path class=\"tick\" d=\"M{0:.1f} {1}v4\"/><text class=\"x\" x=\"{0:.1f}\" y=\"{2}\">{3}</text>\n",
                    x(v), floor, floor + 17, short_number(v));
  for (const double v : ticks(0, most, 4))
    out += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"y\" x=\"{}\" y=\"{:.1f}\">{}</text>\n",
                       kLeft, y(v), kWidth - kRight, kLeft - 7, y(v) + 4, short_number(v));
  return out + "</svg></figure>\n";
}

std::string sparkline(const std::vector<Point>& points, size_t width) {
  static constexpr std::string_view kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (points.empty() || width == 0) return {};
  const size_t columns = std::min(width, points.size());
  std::vector<double> means(columns, 0);
  Range range;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = c * points.size() / columns, end = (c + 1) * points.size() / columns;
    for (size_t i = begin; i < end; ++i) means[c] += points[i].y / (end - begin);
    range.take(means[c]);
  }
  std::string out;
  for (const double m : means) {
    const double part = range.span() > 0 ? (m - range.least) / range.span() : 0;
    out += kBars[static_cast<size_t>(std::clamp(std::floor(part * 8), 0.0, 7.0))];
  }
  return out;
}

std::string escaped(std::string_view text) {
  return as_markup(printable(text, Lines::kept));
}

}  // namespace lumen::model
