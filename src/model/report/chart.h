// Curves over the steps of a run, or over another quantity. The page draws them; terminals get sparklines. Proved by
// tests/model/report/report_chart_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::report {

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;
  std::vector<Point> points;             // by ascending x
  int color = 0;                         // of the page's palette, 0 to 7
  bool faint = false;                    // drawn under the others
  bool dots = false;                     // few points, all drawn as dots
  bool line = true;                      // between the points
  std::vector<std::string> labels = {};  // of the dots: empty, or one per point
  bool large = false;                    // emphasized dots
};

struct Chart {
  std::string title;
  std::string unit;  // after the title; empty: none
  std::vector<Series> series;
  bool logarithmic = false;  // y at first; the page has a button that changes it
  bool from_zero = false;    // y starts at 0
  std::string across = {};   // name of x; empty: steps, which are whole numbers
  bool whole = false;        // x has only whole numbers
};

nlohmann::ordered_json to_json(const Chart& chart);

// At most about 2 * `most` points: minimum and maximum of each interval of x, so that spikes stay.
std::vector<Point> thinned(const std::vector<Point>& points, size_t most);

// The points in at most `most` intervals of as many points each: "x" (the middle point's) and "y" (the mean) and, where
// an interval holds several points, the least and the largest as "low" and "high". Four lists of equal length.
nlohmann::ordered_json condensed(const std::vector<Point>& points, size_t most);

// ▁▂▅█ with `width` characters; empty without points.
std::string sparkline(const std::vector<Point>& points, size_t width);

}  // namespace lumen::model::report
