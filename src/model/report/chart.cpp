#include "model/report/chart.h"

#include <algorithm>
#include <cmath>

namespace lumen::model::report {
namespace {

bool is_lower(const Point& a, const Point& b) {
  return a.y < b.y;
}

}  // namespace

nlohmann::ordered_json to_json(const Chart& chart) {
  nlohmann::ordered_json out = {{"title", chart.title},
                                {"unit", chart.unit},
                                {"across", chart.across},
                                {"logarithmic", chart.logarithmic},
                                {"zero", chart.from_zero},
                                {"whole", chart.whole},
                                {"series", nlohmann::ordered_json::array()}};
  for (const Series& s : chart.series) {
    nlohmann::ordered_json one = {
        {"name", s.name}, {"color", s.color}, {"faint", s.faint},   {"dots", s.dots},
        {"line", s.line}, {"large", s.large}, {"labels", s.labels}, {"points", nlohmann::ordered_json::array()}};
    for (const Point& p : s.points) one["points"].push_back({p.x, p.y});
    out["series"].push_back(std::move(one));
  }
  return out;
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t most) {
  if (most == 0 || points.size() <= 2 * most) return points;
  std::vector<Point> out;
  for (size_t part = 0; part < most; ++part) {
    const size_t begin = part * points.size() / most, end = (part + 1) * points.size() / most;
    const auto [low, high] = std::minmax_element(points.begin() + begin, points.begin() + end, is_lower);
    out.push_back(low->x <= high->x ? *low : *high);
    if (low != high) out.push_back(low->x <= high->x ? *high : *low);
  }
  return out;
}

nlohmann::ordered_json condensed(const std::vector<Point>& points, size_t most) {
  const size_t parts = std::min(points.size(), most);
  std::vector<double> x, y, low, high;
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * points.size() / parts, end = (part + 1) * points.size() / parts;
    double mean = 0;
    for (size_t i = begin; i < end; ++i) mean += points[i].y / (end - begin);
    const auto [least, largest] = std::minmax_element(points.begin() + begin, points.begin() + end, is_lower);
    x.push_back(points[(begin + end - 1) / 2].x);
    y.push_back(mean);
    low.push_back(least->y);
    high.push_back(largest->y);
  }
  nlohmann::ordered_json out = {{"x", x}, {"y", y}};
  if (parts < points.size()) {
    out["low"] = low;
    out["high"] = high;
  }
  return out;
}

std::string sparkline(const std::vector<Point>& points, size_t width) {
  static constexpr std::string_view kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (points.empty() || width == 0) return {};
  const std::vector<double> means = condensed(points, width)["y"];
  const auto [least, most] = std::ranges::minmax(means);
  std::string out;
  for (const double m : means) {
    const double part = most > least ? (m - least) / (most - least) : 0;
    out += kBars[static_cast<size_t>(std::clamp(std::floor(part * 8), 0.0, 7.0))];
  }
  return out;
}

}  // namespace lumen::model::report
