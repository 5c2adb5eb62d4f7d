// needs: none. Curves: nothing lost by thinning, means of intervals with their range, sparklines.
#include <gmock/gmock.h>

#include <cmath>

#include "model/report/chart.h"

namespace lumen::model::report {
namespace {

using testing::ElementsAre;

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

TEST(Chart, CondensedPointsAreMeansWithTheirRange) {
  const std::vector<Point> points = {{1, 2}, {2, 4}, {3, 9}, {4, 1}};
  const nlohmann::ordered_json all = condensed(points, 4), few = condensed(points, 2);
  EXPECT_EQ(all, nlohmann::ordered_json({{"x", {1.0, 2.0, 3.0, 4.0}}, {"y", {2.0, 4.0, 9.0, 1.0}}}));
  EXPECT_THAT(few["x"], ElementsAre(1.0, 3.0));
  EXPECT_THAT(few["y"], ElementsAre(3.0, 5.0));
  EXPECT_THAT(few["low"], ElementsAre(2.0, 1.0));
  EXPECT_THAT(few["high"], ElementsAre(4.0, 9.0));
  EXPECT_TRUE(condensed({}, 2)["x"].empty());
}

TEST(Chart, IsADocument) {
  Chart chart{"t", "nats", {{"a", {{1, 2}, {2, 3}}, 4, false, true, false, {"p", "q"}, true}}};
  chart.across = "bits";
  chart.from_zero = true;
  const nlohmann::ordered_json out = to_json(chart);
  EXPECT_EQ(out["title"], "t");
  EXPECT_EQ(out["unit"], "nats");
  EXPECT_EQ(out["across"], "bits");
  EXPECT_EQ(out["zero"], true);
  EXPECT_EQ(out["logarithmic"], false);
  const nlohmann::ordered_json& s = out["series"][0];
  EXPECT_EQ(s["name"], "a");
  EXPECT_EQ(s["color"], 4);
  EXPECT_EQ(s["dots"], true);
  EXPECT_EQ(s["line"], false);
  EXPECT_EQ(s["large"], true);
  EXPECT_EQ(s["labels"][1], "q");
  EXPECT_EQ(s["points"][1], nlohmann::ordered_json({2.0, 3.0}));
}

TEST(Chart, Sparklines) {
  EXPECT_EQ(sparkline({}, 10), "");
  EXPECT_EQ(sparkline({{1, 5}}, 10), "▁");
  EXPECT_EQ(sparkline({{1, 0}, {2, 7}}, 10), "▁█");
  EXPECT_EQ(sparkline({{1, 8}, {2, 8}, {3, 4}, {4, 4}, {5, 0}, {6, 0}}, 3), "█▅▁");
}

}  // namespace
}  // namespace lumen::model::report
