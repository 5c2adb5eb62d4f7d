// Curves over the steps of a run, or over another quantity, as inline SVG: axes with round ticks, a faint curve of
// single steps under a smoothed one, dots with tooltips (<title>, no script); and histograms. Colours come from the
// page's style. Proved by tests/model/report/report_chart_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumen::model {

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;
  std::vector<Point> points;             // by ascending x
  int color = 0;                         // of the page's palette, 0 to 7
  bool faint = false;                    // drawn under the others, and not in the legend
  bool dots = false;                     // few points, all drawn as dots
  bool line = true;                      // between the points
  std::vector<std::string> labels = {};  // of the dots, for tooltips: empty, or one per point
  bool large = false;                    // emphasized dots
};

struct Chart {
  std::string title;
  std::string unit;  // after the title; empty: none
  std::vector<Series> series;
  bool logarithmic = false;  // y; only for positive values
  bool from_zero = false;    // y starts at 0
  std::string across = {};   // name of x; empty: steps, which are whole numbers
  bool whole = false;        // x has only whole numbers
};

// Round numbers that span [least, most], about `count` of them.
std::vector<double> ticks(double least, double most, int count);
// "0.0012", "1.5k", "2.4e-07": short, and exact enough to distinguish ticks.
std::string short_number(double value);
// At most about 2 * `most` points: minimum and maximum of each interval of x, so that spikes stay.
std::vector<Point> thinned(const std::vector<Point>& points, size_t most);
// Exponential mean over about `span` points.
std::vector<Point> smoothed(const std::vector<Point>& points, double span);
// Whether values are positive and differ by orders of magnitude.
bool is_worth_a_logarithm(const std::vector<Series>& series);

// <figure> with title, legend (for two or more series) and <svg>; without any point, a sentence instead of the curve.
std::string svg_chart(const Chart& chart);

// Two counts over the same bins: `before` as an outline, `after` as bars.
struct Histogram {
  std::string title, unit;
  std::vector<double> edges;          // ascending, one more than bins
  std::vector<double> before, after;  // >= 0, one per bin; `after` may be empty
};
std::string svg_histogram(const Histogram& histogram);

// ▁▂▅█ with `width` characters; empty without points.
std::string sparkline(const std::vector<Point>& points, size_t width);

// Text escaped for HTML, in elements and in quoted attributes.
std::string escaped(std::string_view text);

}  // namespace lumen::model
