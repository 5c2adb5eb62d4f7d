// needs: none. Curves: round ticks, nothing lost by thinning, every text escaped.
#include <gmock/gmock.h>

#include <cmath>

#include "model/report/chart.h"

namespace lumen::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Chart, TicksAreRoundAndInside) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(0, 2000, 6), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_EQ(ticks(3, 3, 5).size(), 1U);
  for (const auto& [least, most] : {std::pair{1e-7, 3.3e-7}, {-5.0, 4.0}, {1e12, 1.0001e12}, {2.301, 2.302}}) {
    const std::vector<double> t = ticks(least, most, 5);
    EXPECT_GE(t.size(), 3U) << least;
    EXPECT_LE(t.size(), 12U) << least;
    for (const double v : t) {
      EXPECT_GE(v, least - 1e-6 * (most - least));
      EXPECT_LE(v, most + 1e-6 * (most - least));
    }
  }
}

TEST(Chart, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1500), "1500");
  EXPECT_EQ(short_number(15000), "15k");
  EXPECT_EQ(short_number(2.5e6), "2.5M");
  EXPECT_EQ(short_number(3e-5), "3e-05");
  EXPECT_EQ(short_number(-0.25), "-0.25");
}

TEST(Chart, ThinningKeepsSpikes) {
  std::vector<Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.01)});
  points[7777].y = 50;
  points[123].y = -50;
  const std::vector<Point> few = thinned(points, 100);
  EXPECT_LE(few.size(), 200U);
  double most = 0, least = 0, last = -1;
  for (const Point& p : few) {
    most = std::max(most, p.y);
    least = std::min(least, p.y);
    EXPECT_GT(p.x, last);
    last = p.x;
  }
  EXPECT_EQ(most, 50);
  EXPECT_EQ(least, -50);
  EXPECT_EQ(thinned(few, 100).size(), few.size());
}

TEST(Chart, SmoothingIsAMean) {
  std::vector<Point> points;
  for (int i = 0; i < 400; ++i) points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0});
  const std::vector<Point> smooth = smoothed(points, 20);
  EXPECT_NEAR(smooth.back().y, 2, 0.1);
  EXPECT_EQ(smooth.front().y, 1) << "no pull towards zero at the beginning";
}

TEST(Chart, TextsAreEscaped) {
  Chart chart;
  chart.title = "<script>alert('t')</script>";
  chart.unit = "\"&";
  chart.series = {{"<b>a</b>", {{1, 2}, {2, 3}}, 0, false, true}, {"b", {{1, 1}}, 9}};
  const std::string svg = svg_chart(chart);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("<b>a")));
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;a&lt;/b&gt;, step 2: 3"));
  EXPECT_EQ(escaped("a\x1b[31m<\u202e>"), "a\\x1b[31m&lt;\\u202e&gt;");
}

TEST(Chart, OddValuesMakeAPictureNevertheless) {
  EXPECT_THAT(svg_chart({"t", "", {}}), HasSubstr("nothing was recorded"));
  for (const std::vector<Point>& points :
       {std::vector<Point>{{5, 5}}, {{1, 0}, {2, 0}}, {{1, 1e300}, {2, -1e300}}, {{1, 1e-300}, {9e15, 1e300}}}) {
    for (const bool logarithmic : {false, true}) {
      if (logarithmic && points.back().y <= 0) continue;
      Chart chart{"t", "", {{"", points}}, logarithmic};
      const std::string svg = svg_chart(chart);
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
      EXPECT_THAT(svg, HasSubstr("</svg>"));
    }
  }
}

TEST(Chart, LogarithmsAreForOrdersOfMagnitude) {
  EXPECT_FALSE(is_worth_a_logarithm({{"", {{1, 2}, {2, 10}}}}));
  EXPECT_TRUE(is_worth_a_logarithm({{"", {{1, 0.01}, {2, 10}}}}));
  EXPECT_FALSE(is_worth_a_logarithm({{"", {{1, 0}, {2, 1000}}}}));
  EXPECT_FALSE(is_worth_a_logarithm({}));
}

TEST(Chart, Sparklines) {
  EXPECT_EQ(sparkline({}, 10), "");
  EXPECT_EQ(sparkline({{1, 5}}, 10), "▁");
  EXPECT_EQ(sparkline({{1, 0}, {2, 7}}, 10), "▁█");
  EXPECT_EQ(sparkline({{1, 8}, {2, 8}, {3, 4}, {4, 4}, {5, 0}, {6, 0}}, 3), "█▅▁");
}

}  // namespace
}  // namespace lumen::model
