// Needs: cpu. Whole matrices rounded with error feedback: the panels, stretches and products together give what a plain
// evaluation of the recurrence gives, for formats of every kind; same bits at any thread count.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/engine/feedback/feedback.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using Floats = std::vector<float>;

size_t at(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

Floats normals(int64_t count, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<int32_t> shuffled(int64_t n) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
  return order;
}

RoundedMatrix rounded(const FormatRef& f, int64_t rows, int64_t columns, const FeedbackOptions& how, const Floats& u,
                      int threads = 2) {
  Engine engine(options("off", threads));
  const Floats w = normals(rows * columns, 3, 1);
  Floats importance;
  if (how.weighs)
    for (int64_t c = 0; c < columns; ++c) importance.push_back(1 + static_cast<float>(c % 7));
  const std::vector<int32_t> order = how.in_order ? shuffled(columns) : std::vector<int32_t>{};
  FeedbackRounder rounder(engine, f, rows, columns, how);
  const FeedbackMatrix matrix(engine, u, rounder.tiling());
  return rounder.run({.w = w, .importance = importance, .order = order, .rounded = {}}, matrix);
}

// With U = 0 feedback is no feedback: the ordinary encoder's bytes, where code sees what the ordinary encoder's does.
TEST(FeedbackRounder, WithoutFeedbackItIsTheOrdinaryEncoder) {
  for (const char* name : {"q4_k", "q8_0", "fp8_tile", "int8_row", "nvfp4_tensor", "nf4", "tq1_0", "f16", "q6_k"}) {
    const FormatRef f = FormatLibrary::builtin().get(name);
    const int64_t rows = 13, columns = std::lcm<int64_t>(f->block, 64) * 3;
    const RoundedMatrix got = rounded(f, rows, columns, {}, Floats(static_cast<size_t>(columns * columns)));
    EXPECT_EQ(got.blob, encode(*f, normals(rows * columns, 3, 1), rows, columns)) << name;
    EXPECT_EQ(got.values, decode(*f, got.blob, rows, columns)) << name;
  }
}

// Plain floats have no ties to break: every x_k is w_k and what columns before it lost, in whatever order sums are
// made.
TEST(FeedbackRounder, WholeMatricesFollowTheRecurrence) {
  for (const bool in_order : {false, true}) {
    for (const char* name : {"int8_row", "int4_g32_asym", "fp8_row"}) {
      const FormatRef f = FormatLibrary::builtin().get(name);
      const int64_t rows = 9, columns = 2400;  // stretches, whose last is shorter
      const Floats u = normals(columns * columns, 8, 0.02F), w = normals(rows * columns, 3, 1);
      const std::vector<int32_t> order = shuffled(columns);
      const RoundedMatrix got = rounded(f, rows, columns, {.weighs = false, .in_order = in_order}, u);
      const auto column = [&](int64_t k) { return in_order ? order[static_cast<size_t>(k)] : k; };
      int64_t far = 0;
      double worst = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < columns; ++k) {
          double x = w[at(r, columns, column(k))];
          for (int64_t j = 0; j < k; ++j)
            x += (double{w[at(r, columns, column(j))]} - got.values[at(r, columns, column(j))]) * u[at(j, columns, k)];
          // The nearest value the format has under the fields it chose is within half a step, values at the end aside.
          const double off = std::fabs(x - got.values[at(r, columns, column(k))]);
          worst = std::max(worst, off);
          if (off > 0.2) ++far;
        }
      EXPECT_LT(far, rows * columns / 50) << name << (in_order ? " in order" : "") << ", worst " << worst;
      EXPECT_GT(got.squared_error, 0);
    }
  }
}

TEST(FeedbackRounder, ThreadsDoNotShow) {
  const FormatRef f = FormatLibrary::builtin().get("q4_k");
  const int64_t columns = 2304;
  const Floats u = normals(columns * columns, 8, 0.02F);
  const RoundedMatrix one = rounded(f, 37, columns, {.weighs = true}, u, 1);
  const RoundedMatrix three = rounded(f, 37, columns, {.weighs = true}, u, 3);
  EXPECT_EQ(one.blob, three.blob);
  EXPECT_EQ(one.squared_error, three.squared_error);
}

TEST(FeedbackRounder, TilesCoverEveryColumn) {
  for (const FormatRef& f : FormatLibrary::builtin().all())
    for (const int64_t blocks : {1, 3, 17, 40, 4096}) {
      const FeedbackTiling t = feedback_tiling(*f, f->block * blocks, {});
      EXPECT_EQ(t.panel % f->block, 0);
      EXPECT_EQ(t.stretch % t.panel, 0);
      EXPECT_EQ(t.padded % t.stretch, 0);
      EXPECT_GE(t.padded, t.columns);
      EXPECT_LT(t.padded - t.columns, t.stretch);
    }
}

TEST(FeedbackRounder, HostileNumbersAreRefused) {
  const FormatRef f = FormatLibrary::builtin().get("int4_g32");
  Floats u(64 * 64);
  u[at(1, 64, 7)] = NAN;
  EXPECT_THROW(rounded(f, 2, 64, {}, u), Error);
  u[at(1, 64, 7)] = 3e38F;  // what is passed on leaves every range
  u[at(7, 64, 9)] = 3e38F;
  EXPECT_THROW(rounded(FormatLibrary::builtin().get("f16"), 2, 64, {}, u), Error);
  Engine engine(options());
  EXPECT_THROW(FeedbackRounder(engine, FormatLibrary::builtin().get("tq1_0"), 2, 256, {.in_order = true}), Error);
  EXPECT_THROW(FeedbackRounder(engine, f, 2, 65, {}), Error);
  FeedbackRounder rounder(engine, f, 1, 64, {});
  const FeedbackMatrix none(engine, Floats(64 * 64), rounder.tiling());
  Floats w(64);
  w[3] = INFINITY;
  EXPECT_THROW(rounder.run({.w = w, .importance = {}, .order = {}, .rounded = {}}, none), Error);
}

}  // namespace
}  // namespace lumen::run
