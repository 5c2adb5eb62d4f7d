// needs: none. Rates over the steps of a run.
#include "model/recipe/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lumen::model::recipe {
namespace {

using Shape = Schedule::Shape;

constexpr Shape kAll[] = {Shape::cosine,       Shape::linear,     Shape::constant,       Shape::wsd,
                          Shape::inverse_sqrt, Shape::polynomial, Shape::cosine_restarts};

Schedule of(Shape shape) {
  return {.shape = shape, .peak = 1, .floor = 0.1, .warmup = 10, .steps = 110};
}

TEST(Schedules, BeginWithAWarmUpAndStayBetweenFloorAndPeak) {
  for (const Shape shape : kAll) {
    const Schedule s = of(shape);
    for (int64_t i = 1; i < 10; ++i) EXPECT_GT(learning_rate(s, i), learning_rate(s, i - 1));
    EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1) << schedule_shape_name(shape);
    for (int64_t i = 10; i < 300; ++i) {
      EXPECT_LE(learning_rate(s, i), 1) << schedule_shape_name(shape) << " " << i;
      EXPECT_GE(learning_rate(s, i), 0.1 - 1e-12) << schedule_shape_name(shape) << " " << i;
    }
    if (ends_at_floor(shape)) {
      EXPECT_NEAR(learning_rate(s, 110), 0.1, 1e-12) << schedule_shape_name(shape);
    }
  }
}

TEST(Schedules, AreTheirFormulas) {
  EXPECT_DOUBLE_EQ(learning_rate(of(Shape::linear), 60), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(of(Shape::constant), 5000), 1);
  EXPECT_DOUBLE_EQ(learning_rate(of(Shape::polynomial), 60), 0.1 + 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(of(Shape::inverse_sqrt), 40), 0.5);
  Schedule wsd = of(Shape::wsd);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 99), 1);  // the last 11 steps fall
  wsd.final_steps = 20;
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 90), 1);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 100), 0.55);
  Schedule restarts = of(Shape::cosine_restarts);
  restarts.cycles = 4;
  for (const int64_t begin : {10, 35, 60, 85}) EXPECT_NEAR(learning_rate(restarts, begin), 1, 1e-12) << begin;
  EXPECT_NEAR(learning_rate(restarts, 34), 0.1, 0.01);
}

// A run that is made longer keeps the rates of the steps that were planned.
TEST(Schedules, LongerRunsKeepWhatTheyDid) {
  for (const Shape shape : kAll) {
    const Schedule s = of(shape);
    Schedule longer = s;
    longer.steps = 500;
    if (ends_at_floor(shape)) longer.decay_steps = s.steps;
    for (int64_t i = 0; i < 110; ++i)
      ASSERT_EQ(learning_rate(longer, i), learning_rate(s, i)) << schedule_shape_name(shape) << " " << i;
    if (ends_at_floor(shape)) {
      EXPECT_NEAR(learning_rate(longer, 300), 0.1, 1e-12);
    }
  }
}

TEST(Schedules, WarmUpsMayBeAShare) {
  for (const Shape shape : kAll) {
    Schedule share = of(shape), steps = of(shape);
    share.warmup = 0;
    share.warmup_ratio = 0.1;  // of 110
    steps.warmup = 11;
    for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(learning_rate(share, i), learning_rate(steps, i)) << i;
    settle_warmup(share);
    EXPECT_EQ(share.warmup, 11);
    share.steps = 1000;  // a run that is made longer keeps it
    EXPECT_EQ(warmup_steps(share), 11);
  }
  Schedule s = of(Shape::linear);
  s.warmup_ratio = 0.005;
  EXPECT_EQ(warmup_steps(s), 1);  // rounded up
  s.decay_steps = 1000;           // planned once, longer now
  EXPECT_EQ(warmup_steps(s), 5);
}

TEST(Schedules, HaveNames) {
  for (const Shape shape : kAll) EXPECT_EQ(schedule_shape(schedule_shape_name(shape)), shape);
  EXPECT_EQ(schedule_shape("cosine_with_restarts"), Shape::cosine_restarts);
  EXPECT_EQ(schedule_shape("warmup_stable_decay"), Shape::wsd);
  EXPECT_EQ(schedule_shape("constant_with_warmup"), Shape::constant);
  EXPECT_THROW((void)schedule_shape("steps"), Error);
}

}  // namespace
}  // namespace lumen::model::recipe
